"""Comparing models: changes in nDCG@10, start to end and PSI, with intervals that hold together."""
