"""Recipes: commands and settings that reproduce tables and figures of papers."""
