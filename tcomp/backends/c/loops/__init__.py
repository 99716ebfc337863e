"""Loops in C as they stand around the innermost ones: nests of a tile, its stages, joined and cut loops, scans.

What runs along rows is in ``rows``, register tiles in ``contractions``.  Open ``nests`` first.
"""
