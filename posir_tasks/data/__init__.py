"""Data readers: repositories on the Hub, local folders, and a reader for each layout."""
