"""What the threads of a block fetch into shared memory: at once, through registers ahead, or asynchronously."""
