"""Networks of PyTorch: what ``torch.export`` makes of a module, one rule an operator.

``exporting`` walks the nodes; it and ``decomposing`` are the only modules that import torch.  Others have the rules.
"""

from tcomp.networks.aten import (  # noqa: F401
    arithmetic,
    attention,
    choosing,
    functions,
    integers,
    ordering,
    parts,
    placing,
    recurrent,
    resizing,
    rules,
    transposed,
    volumes,
)
