"""Search a subset with any mteb model, and score the results."""
