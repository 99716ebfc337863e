"""The passes of the GPU: tiles for blocks, who computes what, phases, barriers, and the model behind them.

Shared memory and registers are assigned in ``mapping/memory``.  Open ``tiles`` first, then ``dealing`` and ``phases``.
"""
