"""Vector types in C: their names, values, extrema, and conversions to wider ones.

Loops over them are in ``loops``, ``rows`` and ``contractions``.  Open ``values`` first.
"""
