"""Sums over all that reads an element, as gathers: subscripts solved for an index, boundaries folded.

What is summed, and in which order, is decided in ``derivatives``.  Open ``gathers`` first.
"""
