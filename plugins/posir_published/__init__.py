"""The published results of the papers, with their source."""
