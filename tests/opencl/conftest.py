"""What all tests of OpenCL share."""

from __future__ import annotations

import os

# PoCL's optimisation takes seconds for a kernel with barriers, and none of it is ours.  Read whenever a text is built.
os.environ.setdefault("PYOPENCL_BUILD_OPTIONS", "-cl-opt-disable")
