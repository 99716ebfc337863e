"""Candidates compiled, run, verified and timed in processes of their own.

Which candidates these are is decided by the search (``searches``).  Open ``evaluation`` first.
"""
