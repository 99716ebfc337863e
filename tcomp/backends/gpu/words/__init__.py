"""What things are called in a kernel: names, expressions, conditions, and the words that each language has of its own.

No lines are written here.  Open ``dialect`` first.
"""
