"""Readers of data formats; each yields passages with questions.

A new format is a reader here, and a row of the table in `catalog.py`; a published dataset with a
question and its page per row is a row of `PAGE_FORMS` in `page_rows.py`.
"""
