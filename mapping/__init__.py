"""How a ``Scop`` is laid on a machine: plans, the passes between them, and the proof that they are right.

``strategy`` has the lists of passes: open it first.  A room imports only from rooms below it; from the bottom up they
are ``machines`` and ``options``, ``plan``, ``tiles``, ``contraction``, ``memory``, ``fusion``, ``cpu`` and ``gpu``,
``proof`` and ``text``.
"""
