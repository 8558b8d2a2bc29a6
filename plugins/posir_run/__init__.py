"""Running many units, one subset of one task by one model each, on this machine or on many."""
