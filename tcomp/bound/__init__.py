"""Operations some of whose arguments are bound: what depends on these alone is computed once and kept.

How statements are split is ``tcomp/model/bindingtime.py``, which panels are packed ahead ``mapping/cpu/packing.py``.
Open ``operation.py`` first.
"""
