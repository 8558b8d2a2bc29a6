"""Published results of the papers, with sources."""
