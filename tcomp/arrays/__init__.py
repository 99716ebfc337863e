"""The caller's arrays, of whichever library, and the devices on which they lie.

What a call does with them is in ``tcomp/runtime``.  Open ``arrays`` first.
"""
