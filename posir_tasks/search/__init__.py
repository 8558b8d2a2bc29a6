"""Searching a subset with any mteb model, and what is measured after a search."""
