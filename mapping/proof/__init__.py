"""The proof that a plan computes what its program says, on one processor and between the threads of a GPU.

Whether a plan's text is well formed is asked elsewhere (``mapping/text/structure.py``).  Open ``legality`` first.
"""
