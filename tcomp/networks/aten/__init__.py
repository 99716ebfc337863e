"""Networks of PyTorch: what ``torch.export`` makes of a module, one rule an operator.

``exporting`` walks the nodes and is the only module that imports torch; ``rules`` and ``parts`` have the rules.
"""

from tcomp.networks.aten import parts, rules  # noqa: F401
