"""All that knows names of mteb that mteb does not promise to keep."""
