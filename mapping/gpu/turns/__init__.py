"""Kernels whose blocks take a long reduction in turns: attention, a tile of keys at a time.

What is computed in a turn is said in ``mapping/rescaling/running.py``, and in ``summing.py`` for the backward pass.
Keys of few queries are shared by blocks instead (``keys``).  Open ``groups`` first.
"""
