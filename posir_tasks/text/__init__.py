"""Spans, words, sentences, tokens, chunks and language of a text, and changes of texts."""
