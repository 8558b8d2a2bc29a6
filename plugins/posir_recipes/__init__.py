"""Recipes: commands and settings that reproduce the tables and figures of papers."""
