"""Comparison of models: changes in nDCG@10 and position effects, with simultaneous intervals."""
