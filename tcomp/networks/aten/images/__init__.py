"""Rules for PyTorch's operators on images: other sizes, transposed convolutions, three axes, reading between pixels."""

from tcomp.networks.aten.images import resizing, transposed, volumes  # noqa: F401
