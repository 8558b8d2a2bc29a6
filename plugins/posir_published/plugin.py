"""The hook implementation: `posir published`."""
