"""The report: results on disk, pooled as the papers pool them, in tables."""
