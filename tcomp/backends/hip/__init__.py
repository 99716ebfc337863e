"""AMD's GPUs: HIP as a dialect of the text that ``backends/gpu`` writes, and clang, which makes machine code of it.

Nothing here runs a kernel.  Open ``target`` first.
"""
