"""Sums of weights that are relative to a maximum, as those of attention, in parts that have maxima of their own."""
