"""From the syntax tree to a ``Function``: names, types, conversions, parameters.

Sizes play no part yet (``grammar/ranges``).  Open ``check`` first.
"""
