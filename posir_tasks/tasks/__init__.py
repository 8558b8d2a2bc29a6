"""The task classes, made from the tables of languages and datasets."""
