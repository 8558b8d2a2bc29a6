"""Dataset statistics: size, text lengths, query types, and evidence positions."""
