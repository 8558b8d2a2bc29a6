"""Comparing models: changes in nDCG@10 and position effects, with intervals that hold together."""
