"""Networks of PyTorch: what ``torch.export`` makes of a module, one rule an operator.

``exporting`` walks the nodes; it and ``decomposing`` are the only modules that import torch.  ``rules``, ``parts``,
``choosing``, ``functions``, ``resizing`` and ``volumes`` have the rules.
"""

from tcomp.networks.aten import choosing, functions, parts, resizing, rules, volumes  # noqa: F401
