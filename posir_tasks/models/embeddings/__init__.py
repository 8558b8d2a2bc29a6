"""The embedding cache: encode each text once per model, prompt and settings, and reuse the result
in every later run.
"""
