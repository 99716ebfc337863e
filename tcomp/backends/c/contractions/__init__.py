"""Register tiles in C: outer products, dot products, sums of lanes, and the packed panels that they read.

The shape of a tile is decided in ``mapping/contraction``.  Open ``registertiles`` first, then ``panels``.
"""
