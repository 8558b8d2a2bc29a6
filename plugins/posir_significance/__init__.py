"""Statistics of position profiles: intervals, the controlled test, verdicts, and their words."""
