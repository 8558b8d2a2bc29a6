"""Where the data comes from: a repository on the Hub or a local folder, and a reader for each layout."""
