"""The shape of a contraction's tile: columns along vectors, rows in registers, blocks of steps, dot products.

The passes that lay out and pack such tiles are in ``mapping/cpu``; a GPU deals them out in ``mapping/gpu``.  Open
``columns`` first.
"""
