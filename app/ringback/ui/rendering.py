"""Templates, their filters, and the headers of every page."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import Response

from ringback.domain.clock import format_iso
from ringback.ui.viewer import Viewer

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing inline, nothing from other hosts."""
PAGE_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_TEMPLATES: Final = Environment(
    loader=PackageLoader("ringback.ui"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def _format_time(instant: datetime | None) -> Markup:
    """An element `time`. A script shows it in the viewer's zone; without it, the page shows UTC."""
    if instant is None:
        return Markup("&ndash;")
    text = format_iso(instant)
    shown = escape(text[:19].replace("T", " ") + " UTC")
    return Markup('<time datetime="{}">{}</time>').format(text, shown)


_FILTERS: Final[dict[str, Callable[..., Any]]] = {"time": _format_time}
_TEMPLATES.filters.update(_FILTERS)


class Renderer:
    """Renders pages whose links begin with the path of the public URL."""

    def __init__(self, *, public_path: str) -> None:
        self.ui_path = f"{public_path}/ui"

    def render_page(
        self, template: str, viewer: Viewer | None, *, title: str, status_code: int = 200, **values: object
    ) -> Response:
        html = _TEMPLATES.get_template(template).render(values, viewer=viewer, title=title, ui=self.ui_path)
        return Response(html, status_code=status_code, headers=PAGE_HEADERS, media_type="text/html")
