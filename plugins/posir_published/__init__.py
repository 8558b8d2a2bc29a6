"""The results of the papers, as figures with their source."""

from posir_published.rows import PublishedRow, macro_average, published_rows, published_tasks

__all__ = ["PublishedRow", "macro_average", "published_rows", "published_tasks"]
