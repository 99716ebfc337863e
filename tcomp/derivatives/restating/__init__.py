"""Defs written anew before anything is derived: for some sizes alone, with content as an input, with simple bounds.

Nothing here differentiates.  Open `content.py` first: it is the shortest.
"""
