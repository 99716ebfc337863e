"""Batches a few images at a time: runs of kernels that go over parts of a batch, whose results then stay in caches.

``independence`` proves what may be taken apart, ``following`` finds the axis of a batch in each value, ``choosing``
says where that pays, and ``splitting`` makes the groups of parts.
"""
