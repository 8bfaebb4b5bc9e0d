"""Compares the headers of a service's responses with those that openapi/ringback.json declares."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import httpx

_DOCUMENT_FILE: Final = Path(__file__).parents[2] / "openapi" / "ringback.json"
UNDECLARED: Final = frozenset(
    {
        "content-type",
        "content-length",
        "cache-control",
        "vary",
        "allow",
        "accept-encoding",
        "x-accel-buffering",
        "x-request-id",
    }
)
"""Headers of HTTP itself and of every response, which need no declaration."""
UNDECLARED_PREFIXES: Final = ("access-control-",)


@cache
def _load_operations() -> list[tuple[re.Pattern[str], dict[str, Any]]]:
    paths: dict[str, dict[str, Any]] = json.loads(_DOCUMENT_FILE.read_text(encoding="utf-8"))["paths"]
    # The fixed paths first, because `{webhook_id}` also matches the names of operations.
    return [
        (re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), paths[path])
        for path in sorted(paths, key=lambda path: "{" in path)
    ]


async def require_declared_headers(response: httpx.Response) -> None:
    """A hook for clients: raises AssertionError for a header that the document does not declare for this response."""
    request = response.request
    operation = next(
        (
            methods[request.method.lower()]
            for pattern, methods in _load_operations()
            if pattern.fullmatch(request.url.path) and request.method.lower() in methods
        ),
        None,
    )
    if operation is None:
        return
    responses = operation["responses"]
    described = responses.get(str(response.status_code), responses["default"])
    declared = {name.lower() for name in described.get("headers", {})}
    sent = {name for name in response.headers if name not in UNDECLARED and not name.startswith(UNDECLARED_PREFIXES)}
    undeclared = sent - declared
    assert not undeclared, f"{request.method} {request.url.path} {response.status_code}: {undeclared} are not declared"
