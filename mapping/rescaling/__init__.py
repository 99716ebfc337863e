"""Sums of weights that are relative to a maximum, as those of attention, in parts that have maxima of their own.

In ``sharing`` blocks share long rows, and each runs through what it has in turns.  In ``summing`` also sums of what
products make, as those of its backward pass, in parts that follow one another.
"""
