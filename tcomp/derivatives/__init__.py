"""The derivative of a def as program text: what PyTorch's autograd does to calls is done to the program here.

Calls of derivatives are ``tcomp/operation.py``'s.  Open ``reverse`` first.
"""
