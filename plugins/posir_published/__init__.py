"""The papers' published results, with their sources."""
