"""Running a model over a subset: mteb's own search, and the first stage of a cross-encoder."""
