"""Letters from a harbour: an example of a package that adds to posir."""
