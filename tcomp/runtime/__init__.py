"""From a checked program to a call: targets, kernels of one shape, arguments, and binding them.

What makes the text of a kernel is in ``tcomp/backends``.  Open ``kernel`` first, and ``registry`` for the targets.
"""
