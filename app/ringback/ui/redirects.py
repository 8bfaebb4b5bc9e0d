"""Sends a browser to another page of the dashboard, and names the path that other parts of the service know.

Middleware adds the path of the public URL to every `Location` (`ringback.api.public_path`). So a redirect is written without
that path.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from starlette.responses import RedirectResponse

from ringback.ui.page_headers import PAGE_HEADERS

PORTAL_PATH: Final = "/ui/portal"
"""Below the public URL: opens a portal link."""


def redirect(path: str, *, headers: Mapping[str, str] = PAGE_HEADERS) -> RedirectResponse:
    """303 to the page at `path`, which is below the dashboard's own: `/calls`, or empty for the first page."""
    return RedirectResponse(f"/ui{path}", status_code=HTTPStatus.SEE_OTHER, headers=headers)
