"""The CPU's C text: the frame of a kernel, its loops over tiles, and the parts that stand inside.

What is decided about tiles is in the plan; here it is only spelled.  Open ``target`` first.
"""
