"""Text for GPUs, whatever their language: a kernel per group of a plan, its phases, copies, reductions and names.

Every decision is in the plan (``mapping/gpu``, ``mapping/memory``); what CUDA, HIP and OpenCL spell otherwise is in a
``words.dialect``.  Open ``program`` first, then ``kernel`` and ``phases``.
"""
