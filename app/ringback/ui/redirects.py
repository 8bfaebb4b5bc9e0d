"""Where a browser goes next: a redirect, or a page that an open page's scripts reload.

Middleware adds the path of the public URL to every `Location` (`ringback.api.public_path`). So a redirect is written without
that path.

The scripts of an open page send requests by themselves: for a part of the page, or for its live list. Such a request follows a
redirect to the sign-in page as a browser does, but its script takes what comes for the part: the sign-in page would be inside
the page of a call, or a list would stand still without a word. So a request that has no part any more reloads the page, and
the browser goes where the page itself leads now.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ringback.ui.page_headers import PAGE_HEADERS

PORTAL_PATH: Final = "/ui/portal"
"""Below the public URL: opens a portal link."""
RELOAD_HEADERS: Final = {**PAGE_HEADERS, "HX-Refresh": "true"}
"""htmx reloads the page for this header, whatever the status."""
EVENT_STREAM: Final = "text/event-stream"
_ENDED_EVENT: Final = b"event: viewer-ended\ndata: -\n\n"
"""ringback.js reloads the page for this event. A browser does not dispatch an event without data."""


def redirect(path: str, *, headers: Mapping[str, str] = PAGE_HEADERS) -> RedirectResponse:
    """303 to the page at `path`, which is below the dashboard's own: `/calls`, or empty for the first page."""
    return RedirectResponse(f"/ui{path}", status_code=HTTPStatus.SEE_OTHER, headers=headers)


def reload_page_of_part(request: Request) -> Response | None:
    """The response to a request for a part of a page that reloads the page; None to a request for a page."""
    if request.headers.get("hx-request") != "true":
        return None
    return Response(status_code=HTTPStatus.NO_CONTENT, headers=RELOAD_HEADERS)


def reload_open_page(request: Request) -> Response | None:
    """The same also for the live list of a page, whose viewer has ended."""
    if request.headers.get("accept") == EVENT_STREAM:
        return Response(_ENDED_EVENT, headers=PAGE_HEADERS, media_type=EVENT_STREAM)
    return reload_page_of_part(request)
