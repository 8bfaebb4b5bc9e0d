"""Cross-origin requests of pages: the middleware of Starlette, which also allows headers whose names the tools choose."""

import re
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

_REQUESTED_HEADERS: Final = "access-control-request-headers"
_ALLOWED_HEADERS: Final = "access-control-allow-headers"
_PARAM_HEADER_PATTERN: Final = re.compile(r"mcp-param-[!#$%&'*+.^_`|~0-9a-z-]+", re.IGNORECASE)
"""The headers in which an MCP client repeats the arguments that a tool marks with `x-mcp-header` (2026-07-28)."""


class McpCorsMiddleware(CORSMiddleware):
    """Also allows `Mcp-Param-…` headers: clients of 2026-07-28 must send them, and no list can name them all."""

    def preflight_response(self, request_headers: Headers) -> Response:
        requested = [name.strip() for name in request_headers.get(_REQUESTED_HEADERS, "").split(",")]
        repeated_arguments = [name for name in requested if _PARAM_HEADER_PATTERN.fullmatch(name)]
        if not repeated_arguments:
            return super().preflight_response(request_headers)
        others = [name for name in requested if name not in repeated_arguments]
        response = super().preflight_response(_with_requested_headers(request_headers, others))
        allowed = response.headers.get(_ALLOWED_HEADERS, "")
        response.headers[_ALLOWED_HEADERS] = ", ".join([allowed, *repeated_arguments])
        return response


def _with_requested_headers(headers: Headers, names: list[str]) -> Headers:
    changed = MutableHeaders(raw=list(headers.raw))
    del changed[_REQUESTED_HEADERS]
    if names:
        changed[_REQUESTED_HEADERS] = ", ".join(names)
    return changed
