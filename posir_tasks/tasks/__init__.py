"""Task classes."""
