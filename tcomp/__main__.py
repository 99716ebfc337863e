"""``python -m tcomp`` is the command ``tcomp``."""

from __future__ import annotations

import sys

from tcomp_command import main

if __name__ == "__main__":
    sys.exit(main())
