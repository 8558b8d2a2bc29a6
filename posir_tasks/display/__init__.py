"""Renderers: numbers, tables, charts and pages."""
