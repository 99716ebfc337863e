"""What a run found, as a result and as a page with charts.

Nothing is measured here but the roofs of a machine.  Open ``result`` first.
"""
