"""The passes of the CPU: tile sizes, register tiles inside them, packed panels, reductions shared by threads.

What a contraction's tile may look like is in ``mapping/contraction``.  Open ``tiles`` first, then ``nests``.
"""
