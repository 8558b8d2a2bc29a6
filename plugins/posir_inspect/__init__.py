"""`posir window` and `posir inspect`: tests of a model, or of an index, on a user's own texts."""
