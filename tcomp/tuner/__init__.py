"""Search for the mapping options that make a program fastest on one machine.

Open ``search`` first: problems, strategies, trials and the database meet there.
"""
