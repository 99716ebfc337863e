"""Where a value may live while a tile runs, who owns an element, and which elements a reference names.

The passes that decide are a target's own (``cpu/buffers.py``, ``cpu/packing.py``, ``gpu/memories.py``,
``gpu/promotion.py``).  Open ``places`` first.
"""
