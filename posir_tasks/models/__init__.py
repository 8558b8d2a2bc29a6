"""Models: from the user's reference (`-m`) to mteb's metadata and the loaded model."""
