"""What a tile of any target reads, writes, recomputes and costs.

Nothing here decides on a tile: that do ``fusion``, ``cpu`` and ``gpu``.  Open ``footprint`` first.
"""
