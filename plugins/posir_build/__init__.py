"""Build a position-controlled dataset from documents with a language model: `posir build`."""
