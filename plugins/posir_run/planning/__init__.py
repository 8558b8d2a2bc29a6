"""Estimating the cost of a run before it starts: texts to encode, size of the embeddings, time."""
