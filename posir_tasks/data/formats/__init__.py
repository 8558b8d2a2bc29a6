"""Readers of data formats; each yields passages with questions.

To add a format, write a reader and add a row to the table in `catalog.py`. A published dataset with
a question and its page per row needs only a row of `PAGE_FORMS` in `page_rows.py`.
"""
