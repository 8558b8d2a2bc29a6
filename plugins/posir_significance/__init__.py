"""How far a profile's numbers can be trusted: noise floor of PSI, intervals, direction of the effect."""
