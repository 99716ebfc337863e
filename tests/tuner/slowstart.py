"""A module whose import does not end soon."""

from __future__ import annotations

import time

time.sleep(1000)
