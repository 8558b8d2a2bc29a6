"""`posir train` and `posir compose`: train models on evidence at chosen positions."""
