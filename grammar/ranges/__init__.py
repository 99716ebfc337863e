"""Sizes and ranges: which values each index takes, and the proof that every access is inside its tensor.

Types are settled before (``grammar/checking``).  Open ``ranges`` first.
"""
