"""Networks in numbers of few bits: where they are rounded, and which layers are computed in integers.

``quantising`` chooses scales by example, ``integers`` is the pass that takes layers between rounded tensors for what
they are, whether we rounded them or a model of ONNX came so; ``narrowing`` keeps weights in 16 bits.
``agreement`` says how far results are from others.
"""
