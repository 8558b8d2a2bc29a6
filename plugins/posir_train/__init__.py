"""Training that controls where in documents the evidence is, and data composed for it."""
