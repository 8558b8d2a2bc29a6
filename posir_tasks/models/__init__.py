"""Models by reference: from what a user writes after `-m` to mteb's metadata of a model, and to the
model itself.
"""
