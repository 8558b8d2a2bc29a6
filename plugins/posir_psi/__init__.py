"""The Position Sensitivity Index, scores per position bin and per length bucket."""
