"""CUDA text: a kernel per group of a plan, its phases, copies, reductions and names.

Every decision is in the plan (``mapping/gpu``, ``mapping/memory``).  Open ``kernel`` first, then ``phases``.
"""
