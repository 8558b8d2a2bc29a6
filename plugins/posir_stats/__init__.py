"""Statistics of a dataset: sizes, lengths, kinds of queries, and where the evidence stands."""
