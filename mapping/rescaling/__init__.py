"""Sums of weights that are relative to a maximum, as those of attention, in parts that have maxima of their own.

In ``summing`` also sums of what products make, as those of its backward pass, in parts that follow one another.
"""
