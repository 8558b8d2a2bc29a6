"""Mitigations of position bias at inference time, which change encoding or search."""
