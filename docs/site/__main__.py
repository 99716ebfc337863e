"""Writes the site to ``build/site``: ``python -m docs.site``.  Warnings are errors, and so are links to nowhere."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from sphinx.cmd.build import main as sphinx

from docs.site import checking
from docs.site.assembling import assemble
from docs.site.pages import ROOT

SOURCE, SITE, KEPT = (ROOT / "build" / name for name in ("site-pages", "site", "site-doctrees"))


def main() -> int:
    """Write and check the site; the exit status."""
    assemble(SOURCE)
    shutil.rmtree(SITE, ignore_errors=True)
    strict = ("--fail-on-warning", "--keep-going", "--quiet")
    places = ("--doctree-dir", str(KEPT), "--conf-dir", str(Path(__file__).parent), str(SOURCE), str(SITE))
    status = sphinx([*strict, "--jobs", "2", *places])
    if status:
        return status
    wrong = checking.faults(SITE)
    for fault in wrong:
        print(fault, file=sys.stderr)  # noqa: T201
    print(f"{SITE.relative_to(ROOT)}: {len(list(SITE.rglob('*.html')))} pages")  # noqa: T201
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
