"""Targets: each owns its pass list, spells loops in its language and loads the result."""
