"""Building data in the PosIR layout: import from other formats, span search and repair, validation."""
