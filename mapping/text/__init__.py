"""A plan as text: printed, read, checked and replayed.

What the text means is decided by ``mapping/plan``, whether it is right by ``mapping/proof``.  Open ``writer`` first.
"""
