"""Readers of data formats; each yields passages with questions. A new one is a module here and a
row of `catalog.py`.
"""
