"""What a program computes: the ``Scop``, how it is built, the interpreter, and bounds on rounding errors.

When and where it is computed is a ``Plan`` (``mapping``).  Open ``scop`` first.
"""
