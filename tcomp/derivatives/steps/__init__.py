"""Blocks of steps under differentiation: what they write gets the step as a subscript, and adjoints go backwards.

``unrolled`` is the place to begin; ``blocks`` has the blocks of the derived text.
"""
