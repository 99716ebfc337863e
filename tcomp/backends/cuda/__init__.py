"""The GPU targets: CUDA text for a plan, NVIDIA's tools, and what launches kernels.

The simulator, which runs the same text without a GPU, is a target of its own.  Open ``target`` first.
"""
