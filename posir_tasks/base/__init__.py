"""Foundations of all packages: errors, limits, files, untrusted input, digests, settings, wording
and progress.
"""
