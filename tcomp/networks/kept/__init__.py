"""What the cache on disk has of networks, beside the texts and the machine code of kernels.

``checked`` keeps the defs of kernels as they were read, ``panels`` the weights as kernels want them.  The cache itself
is ``tcomp.storage``; what a user saves in a file is ``tcomp.networks.saving``.
"""
