"""What tcomp knows of processors and GPUs: caches, registers, limits.

No plan and no pass lives here.  Open ``cpu`` and ``gpu`` for the two tables.
"""
