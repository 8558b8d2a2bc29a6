"""A model on a user's own texts: how far it reads, where evidence fades, which chunk size serves:
`posir inspect`.
"""
