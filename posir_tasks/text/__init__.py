"""Texts: spans, words, sentences, tokens, chunks, languages, rotations and interventions."""
