"""The task classes."""
