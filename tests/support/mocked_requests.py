"""The requests of a mocked route, with types: respx's lists are untyped."""

import json
from typing import Any, cast

import httpx
import respx
from respx.models import Call


def list_requests(route: respx.Route) -> list[httpx.Request]:
    """All requests to the route, oldest first."""
    return [call.request for call in cast("list[Call]", list(route.calls))]


def get_last_request(route: respx.Route) -> httpx.Request:
    return list_requests(route)[-1]


def parse_body(request: httpx.Request) -> Any:
    return json.loads(request.content)


def parse_query(request: httpx.Request) -> dict[str, str]:
    return dict(request.url.params)
