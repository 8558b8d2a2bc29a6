"""Integration with mteb: all code that depends on mteb's private names."""
