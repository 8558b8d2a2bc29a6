"""`posir probe` and `posir study`: the effect of position on embeddings."""
