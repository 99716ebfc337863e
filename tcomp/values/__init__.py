"""Element types, reductions and functions: what values are and what is computed on them, one row each.

Nothing here knows of programs or targets.  Open ``operators`` first, then ``intrinsics``.
"""
