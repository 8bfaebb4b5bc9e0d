"""What a mocked route was asked, with types: respx hands out untyped lists."""

import json
from typing import Any, cast

import httpx
import respx
from respx.models import Call


def requests_of(route: respx.Route) -> list[httpx.Request]:
    """Every request that the route answered, oldest first."""
    return [call.request for call in cast("list[Call]", list(route.calls))]


def last_of(route: respx.Route) -> httpx.Request:
    return requests_of(route)[-1]


def body_of(request: httpx.Request) -> Any:
    return json.loads(request.content)


def query_of(request: httpx.Request) -> dict[str, str]:
    return dict(request.url.params)
