"""Comparing models: differences in nDCG@10 and PSI, with intervals and corrected p-values."""
