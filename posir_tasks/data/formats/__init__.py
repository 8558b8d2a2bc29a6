"""Data format readers. Each reader yields passages with questions.

To add a format, write a reader and add an entry to `FORMATS` in `catalog.py`. A published dataset
whose rows contain a question and its page needs only an entry in `PAGE_FORMS` in `page_rows.py`.
"""
