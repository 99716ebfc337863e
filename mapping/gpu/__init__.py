"""The passes of the GPU: tiles for blocks, who computes what, phases, barriers, and the model behind them.

What both targets share of buffers and copies is in ``mapping/memory``.  Open ``tiles`` first, then ``dealing``.
"""
