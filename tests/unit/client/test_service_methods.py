"""The requests that read results, upstreams and the service itself, and their parsed responses."""

from typing import Any

import httpx
import pytest
import respx

from ringback.client import Conflict, NotFound, RingbackClient, UnexpectedAnswer
from ringback.schemas import examples
from ringback.signing.ed25519 import generate_signing_key, parse_signing_key
from tests.support.mocked_requests import get_last_request, parse_query

CALL = examples.WORKING_CALL
FINISHED = examples.FINISHED_CALL
STARTED: dict[str, Any] = {"call": CALL, "resume_token": "token", "webhooks": []}


async def test_upstreams_and_their_tools_are_listed(client: RingbackClient, service: respx.MockRouter) -> None:
    service.get("/v1/upstreams").respond(json={"upstreams": [examples.UPSTREAM]})
    service.get("/v1/upstreams/git/tools").respond(json={"tools": [examples.TOOL]})

    (upstream,) = await client.upstreams()
    (tool,) = await client.tools("git")

    assert upstream.name == examples.UPSTREAM["name"]
    assert tool.name == examples.TOOL["name"]
    assert tool.input_schema == examples.TOOL["inputSchema"]


async def test_health_is_requested_once(client: RingbackClient, service: respx.MockRouter) -> None:
    route = service.get("/healthz")
    route.side_effect = [httpx.Response(200, json={"status": "ok"}), httpx.Response(503), httpx.ConnectError("refused")]

    assert [await client.healthy() for _ in range(3)] == [True, False, False]


async def test_the_size_and_hash_of_a_result_are_read_without_it(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    service.head("/v1/calls/call_1/result").respond(headers={"content-length": "42", "etag": '"9f0c"'})

    info = await client.result_info("call_1")

    assert (info.bytes, info.sha256) == (42, "9f0c")


async def test_a_proxy_that_compresses_does_not_change_the_size_and_hash_of_a_result(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    def respond(request: httpx.Request) -> httpx.Response:
        if "gzip" in request.headers["accept-encoding"]:  # as nginx does
            return httpx.Response(200, headers={"content-encoding": "gzip", "etag": 'W/"9f0c"'})
        return httpx.Response(200, headers={"content-length": "42", "etag": 'W/"9f0c"'})

    service.head("/v1/calls/call_1/result").mock(side_effect=respond)

    info = await client.result_info("call_1")

    assert (info.bytes, info.sha256) == (42, "9f0c")


async def test_a_result_whose_size_a_proxy_hides_is_not_taken_as_empty(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    service.head("/v1/calls/call_1/result").respond(headers={"etag": '"9f0c"'})

    with pytest.raises(UnexpectedAnswer, match="how long the result is"):
        await client.result_info("call_1")


async def test_a_missing_result_is_a_conflict_without_its_reason(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    service.head("/v1/calls/call_1/result").respond(409, headers={"content-type": "application/problem+json"})

    with pytest.raises(Conflict):
        await client.result_info("call_1")


@pytest.mark.parametrize(
    ("bounds", "header"), [((), "bytes=0-"), ((2,), "bytes=2-"), ((2, 5), "bytes=2-4")], ids=["all", "rest", "part"]
)
@pytest.mark.parametrize("ignores_ranges", [False, True], ids=["ranges", "whole"])
async def test_a_part_of_a_result_is_read_as_stored(
    client: RingbackClient, service: respx.MockRouter, bounds: tuple[int, ...], header: str, *, ignores_ranges: bool
) -> None:
    stored = b'{"content": []}'
    part = stored[slice(*bounds)] if len(bounds) == 2 else stored[sum(bounds) :]
    route = service.get("/v1/calls/call_1/result").respond(
        200 if ignores_ranges else 206, content=stored if ignores_ranges else part
    )

    assert await client.result_part("call_1", *bounds) == part
    assert get_last_request(route).headers["range"] == header


@pytest.mark.parametrize("bounds", [(-1,), (3, 3), (3, 2)])
async def test_an_empty_part_of_a_result_is_not_requested(
    client: RingbackClient, service: respx.MockRouter, bounds: tuple[int, ...]
) -> None:
    with pytest.raises(ValueError, match="`stop` is greater"):
        await client.result_part("call_1", *bounds)


async def test_readiness_metrics_and_problem_types_are_read(client: RingbackClient, service: respx.MockRouter) -> None:
    service.get("/readyz").respond(json={"status": "ready", "degraded": ["/mcp/git"]})
    service.get("/metrics").respond(text="ringback_calls_total 3\n")
    document = {"type": "/problems/unknown-tool", "title": "Unknown tool", "status": 422}
    service.get("/problems/unknown-tool").respond(json=document)

    assert (await client.readiness()).degraded == ("/mcp/git",)
    assert await client.metrics() == "ringback_calls_total 3\n"
    assert (await client.problem_type("unknown-tool")).title == "Unknown tool"


async def test_a_public_key_has_the_form_that_verifiers_accept(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    key = parse_signing_key(generate_signing_key(b"s" * 32))
    later: dict[str, Any] = {"kty": "AKP", "alg": "ML-DSA-44", "pub": "bXk"}
    jwks = {"keys": [dict(key.jwk), {**key.jwk, "crv": "X25519"}, later]}
    service.get("/.well-known/mcp-webhook-jwks.json").respond(json=jwks)

    ours, *others = await client.public_keys()

    assert ours.text == key.public_key
    for other in others:
        with pytest.raises(ValueError, match="not an Ed25519 key"):
            _ = other.text


async def test_a_principal_that_a_method_names_comes_before_that_of_the_client(service: respx.MockRouter) -> None:
    route = service.delete("/v1/calls/call_1").mock(
        return_value=httpx.Response(404, json={}, headers={"content-type": "application/problem+json"})
    )

    async with RingbackClient("http://ringback.example:8090", principal="bob") as operator:
        with pytest.raises(NotFound):
            await operator.erase_call("call_1", principal="alice")

    assert parse_query(get_last_request(route)) == {"principal": "alice"}


async def test_a_client_for_a_principal_names_it_in_every_request_of_the_api(service: respx.MockRouter) -> None:
    listed = service.get("/v1/webhooks").respond(json={"webhooks": [], "next_cursor": None})
    cancelled = service.post("/v1/calls/call_1/cancel").respond(json=CALL)
    healthy = service.get("/healthz").respond(json={"status": "ok"})

    async with RingbackClient("http://ringback.example:8090", principal="*") as operator:
        assert [each async for each in operator.webhooks(health="failing")] == []
        await operator.cancel("call_1")
        await operator.healthy()

    assert parse_query(get_last_request(listed)) == {"health": "failing", "principal": "*"}
    assert parse_query(get_last_request(cancelled)) == {"principal": "*"}
    assert parse_query(get_last_request(healthy)) == {}
