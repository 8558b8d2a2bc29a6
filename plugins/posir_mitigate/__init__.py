"""Mitigations of position bias at inference time: methods that change how a loaded model encodes or
searches documents.
"""
