"""What a layer may be computed by, and which of it is taken.

``choosing`` is the pass, ``convolutions`` says what a convolution is, ``winograd`` has the texts of that algorithm and
``costs`` what each would cost.  Texts of layers as they are written first are in ``tcomp.networks.texts``.
"""
