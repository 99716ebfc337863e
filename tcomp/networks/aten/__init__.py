"""Networks of PyTorch: what ``torch.export`` makes of a module, one rule an operator.

``exporting`` walks the nodes; it and ``decomposing`` are the only modules that import torch.  ``rules``, ``parts``,
``choosing``, ``functions``, ``recurrent``, ``resizing`` and ``volumes`` have the rules.
"""

from tcomp.networks.aten import (  # noqa: F401
    choosing,
    functions,
    parts,
    recurrent,
    resizing,
    rules,
    volumes,
)
