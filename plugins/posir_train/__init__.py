"""Train on evidence at chosen positions, and compose data for such training."""
