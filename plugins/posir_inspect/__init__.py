"""`posir window` and `posir inspect` test a model or an index on the user's own texts."""
