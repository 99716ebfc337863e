"""What is found out about a compiled network: what kernels take, which pass pays, faster options; pictures.

Nothing here decides how a network runs.  Open ``profile.py`` first.
"""
