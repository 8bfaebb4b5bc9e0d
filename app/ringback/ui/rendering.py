"""Templates, their filters, the sections of the dashboard, and the headers of every page."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, NamedTuple, cast

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import Response

from ringback import __version__
from ringback.domain.wait_words import WAIT_WORDS
from ringback.ui.assets import asset_path
from ringback.ui.formats import (
    format_age,
    format_amount,
    format_bytes,
    format_count,
    format_duration,
    format_input_time,
    format_time,
    quote_segment,
    session_path,
    shorten_text,
)
from ringback.ui.page_headers import PAGE_HEADERS, PageHeaders
from ringback.ui.viewer import Viewer

__all__ = ["PAGE_HEADERS", "Renderer"]

_TEMPLATES: Final = Environment(
    loader=PackageLoader("ringback.ui"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)


_FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "time": format_time,
    "age": format_age,
    "input_time": format_input_time,
    "duration": format_duration,
    "bytes": format_bytes,
    "count_text": format_count,
    "amount": format_amount,
    "path_segment": quote_segment,
    "session_path": session_path,
    "shortened": shorten_text,
}
_TEMPLATES.filters.update(_FILTERS)
cast("dict[str, Any]", _TEMPLATES.globals)["wait_words"] = WAIT_WORDS  # jinja has types for its own globals only


class Section(NamedTuple):
    label: str
    """Also the title of the section's list. The handler of another page names its section: section="Calls"."""
    path: str
    """Below the dashboard's path; empty for the first page."""


_SECTIONS: Final = (
    Section("Overview", ""),
    Section("Calls", "/calls"),
    Section("Sessions", "/sessions"),
    Section("Webhooks", "/webhooks"),
    Section("Deliveries", "/deliveries"),
    Section("Upstreams", "/upstreams"),
    Section("Events", "/events"),
)
_AUDIT: Final = Section("Audit", "/audit")


def list_sections(viewer: Viewer | None) -> Sequence[Section]:
    """The sections that this viewer may open. A portal link does not show who changed what."""
    if viewer is None:
        return ()
    if viewer.client_session_id is not None:
        return (Section("Session", session_path(viewer.client_session_id)), Section("Calls", "/calls"))
    return _SECTIONS if viewer.is_portal else (*_SECTIONS, _AUDIT)


def _compile_templates() -> None:
    for name in _TEMPLATES.list_templates(extensions=["html"]):
        _TEMPLATES.get_template(name)


class Renderer:
    """Renders pages whose links begin with the path of the public URL."""

    def __init__(self, *, public_path: str, portal_origins: Collection[str] = ()) -> None:
        self._ui_path = f"{public_path}/ui"
        self.headers = PageHeaders(portal_origins)
        self._is_prepared = False

    async def prepare(self) -> None:
        """Compile all templates before the first page, in a thread: it takes some 0.2 s, and the event loop goes on."""
        if not self._is_prepared:
            await asyncio.to_thread(_compile_templates)
            self._is_prepared = True

    def render_page(
        self,
        template: str,
        viewer: Viewer | None,
        *,
        title: str,
        status_code: int = 200,
        in_portal: bool = False,
        **values: object,
    ) -> Response:
        """`in_portal`: the page may be in the frame of a product, also without a viewer."""
        html = _TEMPLATES.get_template(template).render(
            values,
            viewer=viewer,
            in_portal=in_portal,
            title=title,
            ui=self.find_path(viewer),
            asset=self._asset_url,
            sections=list_sections(viewer),
            version=__version__,
        )
        headers = self.headers.portal if in_portal else self.headers.for_viewer(viewer)
        return Response(html, status_code=status_code, headers=headers, media_type="text/html")

    def render_fragment(self, template: str, *, path: str, **values: object) -> str:
        """A part of a page that is the same for all its viewers; `path` as `find_path` returns it."""
        return _TEMPLATES.get_template(template).render(values, ui=path)

    def find_path(self, viewer: Viewer | None) -> str:
        """What the paths of a viewer's pages begin with."""
        return self._ui_path if viewer is None else f"{self._ui_path}{viewer.pages_path}"

    def _asset_url(self, name: str) -> str:
        return f"{self._ui_path}{asset_path(name)}"
