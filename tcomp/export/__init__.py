"""Kernels to take away: folders with C or CUDA that compile and run where there is no tcomp, and no Python.

What a kernel computes is decided below, in ``tcomp.backends``; nothing here changes its text.
Open ``folder.py`` first.
"""
