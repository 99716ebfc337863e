"""Networks of PyTorch: what ``torch.export`` makes of a module, one rule an operator.

``exporting`` walks the nodes; it and ``decomposing`` are the only modules that import torch.  Others have the rules.
"""

from tcomp.networks.aten import (  # noqa: F401
    arithmetic,
    attention,
    choosing,
    functions,
    gathering,
    images,
    integers,
    ordering,
    parts,
    placing,
    recurrent,
    rules,
    running,
)
