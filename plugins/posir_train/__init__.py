"""Training with control over the position of evidence, and data composed for it."""
