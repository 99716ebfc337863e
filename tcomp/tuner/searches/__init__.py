"""The strategies of a search.  Each module is one, found by being here (``tcomp.tuner.strategies``)."""
