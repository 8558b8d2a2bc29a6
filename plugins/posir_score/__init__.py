"""Scores of existing systems: run files of any tool, and any retriever, on data with qrels and
evidence positions.
"""
