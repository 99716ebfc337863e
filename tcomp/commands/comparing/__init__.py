"""Several mappings of one program beside each other: what they are made of, and where they differ.

Nothing here chooses a mapping.  Open ``compare.py`` first.
"""
