"""What the families of C spell alike."""

from __future__ import annotations

import re

import pytest

from tcomp.backends.dialect import called

TEXT = "tc_min(tc_max_int32_x8(a), xtc_min, _tc_min tc_max_int32_x8b) /*tc_min*/ v_tc_min tc_"


@pytest.mark.parametrize("rest", [r"\w+", r"min\b", r"(min|max)_([a-z]+\d+)_x(\d+)\b", r"\w*"])
def test_names_begin_at_a_word_s_boundary(rest: str) -> None:
    found = called(rest).findall(TEXT)
    assert found == re.findall(rf"\btc_{rest}", TEXT) != []
