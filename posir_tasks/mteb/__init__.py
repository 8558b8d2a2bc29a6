"""The seam to mteb: everything that depends on names that mteb does not promise to keep."""
