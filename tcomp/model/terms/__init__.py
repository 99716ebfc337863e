"""The terms in which a program is told: the sizes it is specialised to, storages of its tensors, and unions of isl's.

Open ``storages`` first.
"""
