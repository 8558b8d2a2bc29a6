"""How far the scores of a profile can be trusted: intervals, the null distribution of PSI, direction of the effect."""
