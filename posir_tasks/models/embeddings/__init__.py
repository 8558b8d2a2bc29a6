"""Embedding cache: encode each text once per model, prompt and settings."""
