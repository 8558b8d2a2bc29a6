"""Datasets by name or path: tasks, files, folders and repositories, opened as one `Dataset`."""
