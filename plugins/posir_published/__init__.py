"""The published results of the papers, with their source."""

from posir_published.rows import PublishedRow, macro_average, published_rows, published_tasks

__all__ = ["PublishedRow", "macro_average", "published_rows", "published_tasks"]
