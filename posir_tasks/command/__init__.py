"""The `posir` command."""
