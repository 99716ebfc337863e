"""From text to syntax tree, and what can still be said of a text that is not in the language.

Types and meanings are not looked at here (``grammar/checking``).  Open ``parser`` first.
"""
