"""Groups whose threads reduce rows together: softmax, norms, sums along the last dimension.

All clusters of such a group deal rows alike, so what a thread has of one stays in its registers.  Open ``dealing``
first.
"""
