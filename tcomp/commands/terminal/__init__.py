"""What commands print, and the exit codes with which they end.

Pages and pictures are made by the tuner.  Open ``display`` first.
"""
