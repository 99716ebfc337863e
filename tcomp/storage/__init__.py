"""What outlives a call: the cache on disk, its locks and files, memos, and how all bear forks and signals.

What is kept is decided elsewhere; the key of a kernel is made in ``tcomp/runtime/specialisation.py``.  Open ``cache``
first.
"""
