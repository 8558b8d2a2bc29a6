"""Construction of a position-controlled dataset from documents: one module per stage, and what the stages share."""
