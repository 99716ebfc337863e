"""Trials, what identifies a problem and a machine, and the file that keeps both from run to run.

How a trial is measured is not known here (``measuring``).  Open ``trials`` first, then ``database``.
"""
