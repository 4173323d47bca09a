"""For mkdocs: after the build, check every link and anchor inside the site, also those in raw HTML that mkdocs does not look at.

A link that leads nowhere is a warning, and so ends a strict build. Addresses of other sites are not asked for.
"""

from __future__ import annotations

import logging
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig

log = logging.getLogger("mkdocs.hooks.links")


class Page(HTMLParser):
    """The links and the anchors of one page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors = {"", "__skip"}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect what the tag refers to, and what can refer to it."""
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value and tag != "base":
                self.links.append(value)


def broken(site: Path) -> list[str]:
    """The links of a built site that lead nowhere, each with its page."""
    pages = {path: Page(path) for path in site.rglob("*.html") if path.name != "404.html"}
    found = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            missing = not target.exists()
            if missing or (target in pages and unquote(parts.fragment) not in pages[target].anchors):
                found.append(f"{path.relative_to(site)}: {link}")
    return found


def on_post_build(config: MkDocsConfig) -> None:
    """Called by mkdocs when the site is written."""
    for link in broken(Path(config.site_dir).resolve()):
        log.warning("link that leads nowhere: %s", link)
