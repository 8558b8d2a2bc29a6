"""Statistics of a dataset: sizes, lengths, types of queries, and positions of the evidence."""
