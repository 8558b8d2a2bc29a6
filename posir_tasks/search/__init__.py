"""Searching a subset with any mteb model, and the first stage of a cross-encoder."""
