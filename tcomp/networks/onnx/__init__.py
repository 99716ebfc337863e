"""Networks of ONNX: files and models of opset 13 and newer, one rule an operator.

``reading`` opens a model, ``graph`` walks its nodes, and the other modules have the rules; ``texts`` is what those
write.  The package ``onnx`` is imported when a model is read.
"""

from tcomp.networks.onnx import (  # noqa: F401
    choosing,
    convolving,
    elementwise,
    moving,
    normalising,
    products,
    quantised,
    recurrent,
    reducing,
    resizing,
    signals,
)
