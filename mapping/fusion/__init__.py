"""Which statements share a tile: fusion by footprint, inlining, and what is computed ahead once.

Tile sizes and what happens inside a tile are a target's own (``cpu``, ``gpu``).  Open ``fusion`` first.
"""
