"""`posir window` and `posir inspect`: a model or an index on a user's own texts."""
