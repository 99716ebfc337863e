"""Innermost loops along rows in C: vectors, reductions, short rows, floats of 16 bits, stores past the caches.

Register tiles of contractions are elsewhere (``contractions``).  Open ``loops`` first.
"""
