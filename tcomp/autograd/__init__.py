"""Operations as PyTorch's own: recorded by autograd, traced by its compilers, transformed by ``torch.func``.

``dispatch`` decides what a call with torch tensors needs.  Open it first.  Everything here imports torch.
"""
