"""Readers: repositories on the Hub or local folders, and a reader for each layout."""
