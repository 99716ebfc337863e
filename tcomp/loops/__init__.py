"""The loops of a plan: the tree that backends spell, how it is generated, and what is simplified on it.

No text of any language is made here.  Open ``ir`` first, then ``codegen``.
"""
