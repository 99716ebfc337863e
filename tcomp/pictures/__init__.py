"""Pictures of what happens: trees, iterations and their order, tiles, memories, loops, rates.

What is drawn is read from a compilation; nothing here decides anything.  matplotlib is imported when a picture is
drawn.  Open ``drawing.py`` first.
"""
