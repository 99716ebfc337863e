"""The command line, a module a command.

What commands read from their arguments is in ``inputs``, how they print in ``terminal``.  Open ``compile`` first.
"""
