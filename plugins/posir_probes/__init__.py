"""Probes: how an embedding depends on where in a text something is, for any model and any texts."""
