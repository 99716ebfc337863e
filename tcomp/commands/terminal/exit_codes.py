"""How ``tcomp`` ends."""

DONE = 0
WRONG = 1
"""The program or an input is wrong, or a check found a difference."""
USAGE = 2
NOT_HERE = 3
"""The target, or a tool that it needs, is not on this machine."""
INTERRUPTED = 130
