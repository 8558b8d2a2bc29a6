"""Data format readers. Each reader yields passages with questions.

To add a format, write a reader and add an entry to `FORMATS` in `catalog.py`. If the rows of a
published dataset contain a question and its page, add an entry to `PAGE_FORMATS` in `page_rows.py`
instead.
"""
