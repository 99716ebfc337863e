"""What must hold for the pages of the site: links lead somewhere, and nothing comes from another machine."""

from __future__ import annotations

import html.parser
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

_FETCHED = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}
_REMOTE = re.compile(r"""(?:url\(\s*['"]?|@import\s+['"])(?:https?:)?//""")


class _Page(html.parser.HTMLParser):
    """The anchors of a page, what its links name, and what it fetches."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.icon = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        self.icon |= tag == "link" and "icon" in given.get("rel", "").split()
        if given.get(_FETCHED.get(tag, "")) and given.get("rel") not in (
            "canonical",
            "index",
            "search",
            "next",
            "prev",
        ):
            self.fetched.append(given[_FETCHED[tag]])


def faults(site: Path) -> list[str]:
    """What is wrong with a site, a line each."""
    pages = {path.resolve(): _Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        shown = path.relative_to(site.resolve())
        found += [f"{shown}: {fault}" for fault in _links(path, page, pages)]
        found += [f"{shown}: fetches {link}" for link in page.fetched if "//" in link]
        if not page.icon:
            found.append(f"{shown}: names no icon, so that browsers ask for one that is not there")
    for sheet in site.rglob("*.css"):
        if _REMOTE.search(sheet.read_text(encoding="utf-8")):
            found.append(f"{sheet.relative_to(site)}: fetches from elsewhere")
    return sorted(found)


def _links(path: Path, page: _Page, pages: dict[Path, _Page]) -> Iterator[str]:
    for link in [*page.links, *(f for f in page.fetched if "//" not in f)]:
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", target):
            continue
        to = (path.parent / unquote(target.partition("?")[0])).resolve() if target else path
        if not to.exists():
            yield f"the link {link} leads nowhere"
        elif anchor and to in pages and unquote(anchor) not in pages[to].anchors:
            yield f"the link {link} names a place that is not there"
