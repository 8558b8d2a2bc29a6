"""The results of the papers, as figures with their source."""
