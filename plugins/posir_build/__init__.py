"""Building datasets in the PosIR layout: import, repair, span search and validation."""
