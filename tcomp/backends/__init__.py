"""Targets: each owns its list of passes, spells loops in its language, and loads the result.

What all targets share is on top: open ``source`` and ``spelling``.  ``c`` and ``cuda`` hold the two languages, each
with its ``target``; ``host`` the tools of this machine, ``simulator`` what runs CUDA text without a GPU.
"""
