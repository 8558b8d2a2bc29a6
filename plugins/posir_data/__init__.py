"""Import and validation of data: `posir import` and `posir validate`."""
