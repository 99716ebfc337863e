"""Search for the mapping options that make a program fastest on one machine.

Open ``tuning`` first, then ``search``: problems, strategies, trials and the database meet there.  Rooms from the bottom
up: ``database``, ``space``, ``model``, ``searches``, ``report``, ``measuring``.
"""
