"""Text processing: spans, words, sentences, tokens, chunks, languages and rotations."""
