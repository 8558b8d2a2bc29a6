"""Scores of what already runs: run files of any tool, and any retriever, on data with judgments and
positions of evidence.
"""
