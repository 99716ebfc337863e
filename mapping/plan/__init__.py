"""What a plan is: its values, its tree, its tile operations, and the first schedule, which has nothing but clusters.

Passes live elsewhere, and so does the text of a plan (``mapping/text``).  Open ``values`` first.
"""
