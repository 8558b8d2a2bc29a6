"""How values are shown: wording, numbers, tables, progress."""
