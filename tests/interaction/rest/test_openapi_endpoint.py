"""The OpenAPI document is built once, and all responses share its bytes."""

import asyncio
import json
from typing import Any

from starlette.requests import Request

from ringback.api.openapi_endpoint import OpenApiEndpoint
from tests.support.service import ServiceUnderTest

DOCUMENT = {"paths": {f"/v1/{number}": "x" * 100 for number in range(5000)}}


def request() -> Request:
    return Request({"type": "http", "method": "GET", "path": "/openapi.json", "headers": []})


async def test_concurrent_requests_build_the_document_once() -> None:
    made = 0

    def make() -> dict[str, Any]:
        nonlocal made
        made += 1
        return DOCUMENT

    served = OpenApiEndpoint(make)
    responses = await asyncio.gather(*(served(request()) for _ in range(50)))

    assert made == 1
    assert json.loads(bytes(responses[0].body)) == DOCUMENT
    assert {id(response.body) for response in responses} == {id(responses[0].body)}


async def test_a_document_that_failed_to_build_is_built_for_the_next_request() -> None:
    failing = True

    def make() -> dict[str, Any]:
        if failing:
            raise RuntimeError("no memory")
        return DOCUMENT

    served = OpenApiEndpoint(make)
    (failed,) = await asyncio.gather(served(request()), return_exceptions=True)
    failing = False

    assert isinstance(failed, RuntimeError)
    assert json.loads(bytes((await served(request())).body)) == DOCUMENT


async def test_the_service_serves_its_document_whole(service: ServiceUnderTest) -> None:
    anonymous = await service.create_anonymous_client()

    response = await anonymous.get("/openapi.json")

    assert (response.status_code, response.headers["content-type"]) == (200, "application/json")
    assert response.headers["content-length"] == str(len(response.content))
    assert "/v1/calls" in response.json()["paths"]
