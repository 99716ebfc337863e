"""From a network as it was read to one whose calls are cheap: the passes before calls become kernels.

Open ``passes`` first: it has them in order.  ``folding`` computes with weights, ``rebuilding`` helps passes to write
networks.
"""
