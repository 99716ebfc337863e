"""Which options a program may take, where a search begins, and what it may try next.

What a candidate costs is estimated elsewhere (``model``).  Open ``space`` first.
"""
