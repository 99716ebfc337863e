"""Products of matrices by warps: what an instruction needs of a plan, and the pass that uses it.

Open ``products`` first.
"""
