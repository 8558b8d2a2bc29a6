"""Search of a subset with any mteb model, and measurements on its results."""
