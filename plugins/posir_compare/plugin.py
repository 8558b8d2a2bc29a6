"""The hook implementation: `posir compare`."""
