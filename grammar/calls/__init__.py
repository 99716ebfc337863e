"""Calls between defs and texts that use other texts: every def becomes one without calls, which ``checking`` checks.

What a def without calls means is not decided here.  Open ``inlining.py`` first.
"""
