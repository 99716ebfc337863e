"""The mapping options, and what a declaration of one says.

What an option does lives with the pass that reads it.  Open ``declared`` for the list.
"""
