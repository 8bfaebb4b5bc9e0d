"""Parses pages as a browser does, and finds what a page of the dashboard must not have."""

from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Final

_SCRIPTS: Final = "/ui/assets/"
_URL_ATTRIBUTES: Final = frozenset({"href", "src", "action", "formaction", "xlink:href", "data", "srcset", "poster"})
_URL_ATTRIBUTES_OF_HTMX: Final = frozenset({"hx-get", "hx-post", "sse-connect"})
_FORBIDDEN_TAGS: Final = frozenset(
    {"iframe", "object", "embed", "base", "style", "img", "image", "foreignobject", "template", "math", "marquee"}
    | {"audio", "video", "applet", "frame", "frameset", "xss", "x"}
)


class ParsedPage(HTMLParser):
    """The texts, the attributes and the faults of a page."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self.faults: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open.append(tag)
        self.faults += self._find_faults(tag, attrs)
        self.texts += [value for _, value in attrs if value]

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            del self._open[self._open.index(tag) :]

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "script" and data.strip():
            self.faults.append(f"inline script: {data[:50]}")
        self.texts.append(data)

    def handle_comment(self, data: str) -> None:
        self.faults.append(f"comment: {data[:50]}")

    def _find_faults(self, tag: str, attrs: list[tuple[str, str | None]]) -> Iterator[str]:
        if tag in _FORBIDDEN_TAGS:
            yield f"<{tag}>"
        for name, value in attrs:
            if name.startswith(("on", "hx-on")) or name in {"style", "srcdoc"}:
                yield f"{name}={value}"
            if name in _URL_ATTRIBUTES | _URL_ATTRIBUTES_OF_HTMX and not _is_own_url(value or ""):
                yield f"{tag} {name}={value}"
            if tag == "script" and name == "src" and not (value or "").startswith(_SCRIPTS):
                yield f"script {value}"

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def _is_own_url(url: str) -> bool:
    """Whether the URL leads to the dashboard or stays on the page, however a browser reads it."""
    return url == "" or url.startswith(("#", "?", "/ui/", "/ui?")) or url == "/ui"
