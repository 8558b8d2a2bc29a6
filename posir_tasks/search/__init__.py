"""The search of a subset with any model of mteb, and measurements on its results."""
