"""Random programs: statements, subscripts and values whose results are exact in any order.

Options, targets and comparisons are one folder up.  Open ``generation`` first.
"""
