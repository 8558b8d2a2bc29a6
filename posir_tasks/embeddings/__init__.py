"""The embedding cache: each text is encoded once for each model and way of encoding it."""
