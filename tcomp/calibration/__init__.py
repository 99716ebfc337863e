"""Numbers that were fitted to other machines, fitted anew to this one: ``tcomp calibrate``.

``search`` is the place to begin: it tries a number at a time on a few programs, and keeps what is faster.
"""
