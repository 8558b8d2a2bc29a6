"""Modules that every other package may use: errors, limits, files, untrusted input, digests,
settings, wording, progress.
"""
