"""The C compiler of this machine, the libraries that it makes, and calls into them.

Nothing here spells a kernel.  Open ``toolchain`` first, then ``native``.
"""
