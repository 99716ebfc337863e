"""Pictures of the lessons: ``picture("matmul_footprint", kernel.draw, "footprint")``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import tcomp as tc


def picture(name: str, draw: Callable[..., Any], *what: str) -> None:
    """A picture into the folder `out`, where matplotlib is installed."""
    Path("out").mkdir(exist_ok=True)
    try:
        print(f"picture: {draw(*what).save(f'out/{name}.svg')}")
    except tc.TargetError as error:
        print(f"no picture: {error.message}")
