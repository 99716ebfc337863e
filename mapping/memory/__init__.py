"""Where a value lives while a tile runs, and how copies of tensors are described: buffers, panels, shared tiles, banks.

Who waits for whom is not told here (``mapping/gpu/barriers.py``), nor how copies are spelled (``tcomp/backends``).
Open ``buffers`` first.
"""
