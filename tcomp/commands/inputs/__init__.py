"""What a command line says of programs, sizes, shapes and arrays.

Commands themselves are one folder up.  Open ``programs`` first.
"""
