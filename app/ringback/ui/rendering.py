"""Templates, their filters, and the headers of every page."""

from collections.abc import Callable
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import Response

from ringback import __version__
from ringback.ui.assets import asset_path
from ringback.ui.formats import (
    format_age,
    format_bytes,
    format_count,
    format_duration,
    format_time,
    quote_segment,
    shorten_text,
)
from ringback.ui.navigation import list_sections
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


_FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "time": format_time,
    "age": format_age,
    "duration": format_duration,
    "bytes": format_bytes,
    "count_text": format_count,
    "path_segment": quote_segment,
    "shortened": shorten_text,
}
_TEMPLATES.filters.update(_FILTERS)
_TEMPLATES.globals["version"] = __version__


class Renderer:
    """Renders pages whose links begin with the path of the public URL."""

    def __init__(self, *, public_path: str) -> None:
        self.ui_path = f"{public_path}/ui"

    def render_page(
        self, template: str, viewer: Viewer | None, *, title: str, status_code: int = 200, **values: object
    ) -> Response:
        html = _TEMPLATES.get_template(template).render(
            values,
            viewer=viewer,
            title=title,
            ui=self.ui_path,
            asset=self._asset_url,
            sections=list_sections(viewer),
        )
        return Response(html, status_code=status_code, headers=PAGE_HEADERS, media_type="text/html")

    def render_fragment(self, template: str, **values: object) -> str:
        """A part of a page that is the same for all its viewers."""
        return _TEMPLATES.get_template(template).render(values, ui=self.ui_path)

    def _asset_url(self, name: str) -> str:
        return f"{self.ui_path}{asset_path(name)}"
