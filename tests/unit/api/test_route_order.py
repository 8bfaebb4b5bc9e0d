"""Requests about calls are matched first, and each request still reaches the operation that the document names."""

import re
from collections.abc import Sequence
from typing import Any, cast

from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Match

from ringback.api.app import create_app, create_documented_app
from ringback.api.context import ApiConfig
from ringback.api.routes import calls
from ringback.services.services import Services


def find_operations(route: BaseRoute) -> Sequence[APIRoute]:
    if isinstance(route, APIRoute):  # FastAPI 0.133 has copies of the operations, and later versions the router
        return [route]
    router = getattr(route, "original_router", None)
    return [] if router is None else [each for each in router.routes if isinstance(each, APIRoute)]


def find_first_match(routes: Sequence[BaseRoute], method: str, path: str) -> APIRoute | None:
    scope: dict[str, Any] = {"type": "http", "method": method, "path": path, "root_path": "", "headers": []}
    operations = (operation for route in routes for operation in find_operations(route))
    return next((each for each in operations if each.matches(dict(scope))[0] is Match.FULL), None)


def create_routes() -> Sequence[BaseRoute]:
    config = ApiConfig(authenticator=cast("Any", None), public_url="http://127.0.0.1:8080", request_bytes_max=1)
    return create_app(cast("Services", None), config=config).router.routes


def test_the_operations_of_calls_are_tried_before_all_others() -> None:
    about_calls = [each for each in calls.router.routes if isinstance(each, APIRoute)]
    operations = [operation for route in create_routes() for operation in find_operations(route)]

    assert operations[: len(about_calls)] == about_calls


def test_each_request_matches_the_operation_that_it_matched_in_the_order_of_the_document() -> None:
    documented, routes = create_documented_app().router.routes, create_routes()
    requests = [
        (method, re.sub(r"\{[^}]*\}", "one", operation.path))
        for route in documented
        for operation in find_operations(route)
        for method in operation.methods or ()
    ]

    assert len(requests) > 50
    assert [(each, find_first_match(routes, *each)) for each in requests] == [
        (each, find_first_match(documented, *each)) for each in requests
    ]
