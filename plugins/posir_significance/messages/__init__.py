"""The words for findings and changes. Every sentence about a result is made in this package, from
numbers and names; a module for each room that shows results.
"""
