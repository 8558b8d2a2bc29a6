"""Truncation: how much of the evidence lies beyond a model's input window, and scores over the rest."""
