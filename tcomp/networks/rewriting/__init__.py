"""Rewrites of networks as data: pairs of program text, one matcher for all, and the proof of each.

Open ``table`` first: it has the rules.  ``rules`` says what one is, ``families`` what words in it stand for,
``matching`` finds where one holds, ``applying`` is the pass, and ``proving`` shows that both sides of a rule compute
the same, with ``exact``, which evaluates them.
"""
