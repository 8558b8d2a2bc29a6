"""Statistics of the scores of a profile: intervals, the null distribution of PSI, direction of the
effect.
"""
