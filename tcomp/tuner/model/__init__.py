"""What candidates cost before they run: facts of their plans, estimates, and trees learned from other programs.

The trees are fitted by ``benchmarks/tuning_fit.py`` and come as JSON.  Open ``features`` first.
"""
