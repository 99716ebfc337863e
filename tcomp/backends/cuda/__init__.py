"""NVIDIA's GPUs: CUDA as a dialect of the text that ``backends/gpu`` writes, NVIDIA's tools, and what launches kernels.

The simulator, which runs the same text without a GPU, is a target of its own.  Open ``target`` first.
"""
