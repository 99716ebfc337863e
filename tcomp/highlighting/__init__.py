"""How editors and web pages colour program text: one table of patterns, a Pygments lexer and a TextMate grammar of it.

Nothing here parses.  Open ``rules.py`` first; ``tc.tmLanguage.json`` is made from it.
"""
