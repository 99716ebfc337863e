"""Programs with blocks of steps, taken apart into pieces that have a model of their own, and what passes between these.

The order of steps in the interpreter is in ``model/steps.py``.  Open ``pieces`` first.
"""
