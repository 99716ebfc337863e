"""What a program is: its syntax tree, the checked ``Function``, forms of expressions, and where errors point.

Reading, checking and ranges are the rooms above.  Open ``syntax`` first, then ``function``.
"""
