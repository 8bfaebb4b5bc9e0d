"""Malformed requests get an error with a reason, start nothing, and the next request is served."""

import gzip
import json
from collections.abc import Generator, Sequence
from typing import Any, Final

import httpx
import pytest

from tests.interaction.gateway.conftest import GatewayHarness
from tests.interaction.gateway_hostile.conftest import (
    HostileClient,
    count_stored_calls,
    encode_request,
    routing_headers,
)
from tests.support.mcp_wire import ACCEPT, LEGACY, MODERN, Json, LegacyClientSession

COUNT: Final[Json] = {"name": "count", "arguments": {}}
CALLED_TOOL: Final[dict[str, str | None]] = {"mcp-method": "tools/call", "mcp-name": "count"}
SECRET: Final = "whsec_thisIsNobodysBusiness"
POSITION: Final = '"HERE"'
LEVELS: Final = (260, 10_000, 200_000)
LARGE_TEXT: Final = "x" * 200_000


@pytest.fixture(autouse=True)
def nothing_is_begun(gate: GatewayHarness) -> Generator[None]:
    before = count_stored_calls(gate)
    yield
    assert count_stored_calls(gate) == before


def assert_rejected(answer: httpx.Response, *statuses: int) -> Json:
    """The error, which contains no secret and no internals."""
    assert answer.status_code in (statuses or (400,)), answer.text[:500]
    assert SECRET not in answer.text
    assert "Traceback" not in answer.text
    error: Json = answer.json()["error"]
    assert error["message"]
    return error


@pytest.mark.parametrize("request_id", [None, 1.5, True, {}, [[1]]])
async def test_an_id_that_is_neither_string_nor_integer_is_refused(intruder: HostileClient, request_id: object) -> None:
    answer = await intruder.send_request("tools/call", COUNT, id=request_id)
    assert assert_rejected(answer)["code"] == -32600


@pytest.mark.parametrize("request_id", [None, 1.5, True, {}, []])
async def test_a_session_refuses_such_an_id_too(session: LegacyClientSession, request_id: object) -> None:
    message = {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": COUNT}
    answer = await session.http.post(session.url, json=message, headers=session.headers)
    assert assert_rejected(answer)["code"] == -32600
    assert answer.json()["id"] is None


async def test_two_members_of_one_name_are_refused_in_both_eras(
    intruder: HostileClient, session: LegacyClientSession
) -> None:
    body = encode_request("tools/call", COUNT).replace(b'"name":', b'"name": "hold", "name":')
    headers = {**session.headers, "content-type": "application/json"}
    for answer in (
        await intruder.post(body, headers=CALLED_TOOL),
        await session.http.post(session.url, content=body, headers=headers),
    ):
        assert "two members named 'name'" in assert_rejected(answer)["message"]
        assert answer.json()["id"] is None


@pytest.mark.parametrize(
    ("name", "status", "values"),
    [
        ("accept", 406, [None, "application/json", "text/event-stream", "text/html", "*/*;q=0"]),
        (
            "content-type",
            415,
            [None, "text/plain", "application/xml", "application/jsonx", "application/json-patch+json"],
        ),
    ],
)
async def test_a_wrong_media_type_is_refused_in_words_in_both_eras(
    intruder: HostileClient, session: LegacyClientSession, name: str, status: int, values: Sequence[str | None]
) -> None:
    body = encode_request("tools/call", COUNT)
    usual = {"accept": session.headers["accept"], "content-type": "application/json"}
    for value in values:
        sent = {**usual, name: value or ""}
        for answer in (
            await intruder.post(body, headers={**CALLED_TOOL, **sent}),
            await session.http.post(session.url, content=body, headers={**session.headers, **sent}),
        ):
            assert name in assert_rejected(answer, status)["message"].lower()
            assert (answer.json()["id"], answer.headers["content-type"]) == (None, "application/json")


async def test_a_compressed_body_is_refused_by_the_name_of_its_encoding(intruder: HostileClient) -> None:
    body = gzip.compress(encode_request("tools/call", COUNT))
    answer = await intruder.post(body, headers={**CALLED_TOOL, "content-encoding": "gzip"})
    assert "'gzip'" in assert_rejected(answer, 415)["message"]
    assert answer.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("name", ["authorization", "ringback-idempotency-key", "mcp-session-id"])
async def test_two_headers_of_which_one_must_count_are_refused(intruder: HostileClient, name: str) -> None:
    headers = [
        *{**ACCEPT, "content-type": "application/json", "mcp-protocol-version": MODERN}.items(),
        *((key, value) for key, value in CALLED_TOOL.items() if value is not None),
        ("authorization", f"Bearer {intruder.key}"),
        *((name, value) for value in ("one", "two")),
    ]
    url = f"{intruder.gate.url}/mcp/paint"
    answer = await intruder.gate.http.post(url, content=encode_request("tools/call", COUNT), headers=headers)
    assert "is sent more than once" in assert_rejected(answer)["message"]


async def test_a_batch_is_refused_whatever_is_in_it(intruder: HostileClient) -> None:
    one = json.loads(encode_request("tools/call", COUNT))
    answer = await intruder.post(json.dumps([one, one]).encode(), headers=CALLED_TOOL)
    assert assert_rejected(answer)["code"] == -32600


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 300, "-" + "1" * 5000])
async def test_a_number_out_of_range_is_refused_and_not_changed(
    gate: GatewayHarness, intruder: HostileClient, session: LegacyClientSession, number: str
) -> None:
    spoiled = {"name": "count", "arguments": {"a": "HERE"}}
    body = encode_request("tools/call", spoiled).replace(POSITION.encode(), number.encode())
    assert assert_rejected(await intruder.post(body, headers=CALLED_TOOL))["code"] in {-32602, -32700}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": spoiled}).encode()
    headers = {**session.headers, "content-type": "application/json"}
    spoiled_body = body.replace(POSITION.encode(), number.encode())
    answer = await gate.http.post(session.url, content=spoiled_body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"], answer.json()["id"]) == (200, -32602, 1)
    assert await session.request("tools/list", {})
    modern_headers = {**headers, "mcp-protocol-version": MODERN}
    assert (await gate.http.post(session.url, content=spoiled_body, headers=modern_headers)).status_code == 400


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("1e400", "The body has a number beyond the range of doubles, at line 1, column "),
        ("1" * 5000, "The body has a number beyond the range of doubles, at line 1, column "),
        ("1" * 301, "The body has an integer of more than 300 digits"),
        (r'"\ud800"', "The body has an unpaired surrogate, at line 1, column "),
        ("[" * 260 + "]" * 260, "more than 250 levels"),
        ("NaN", "The body is not JSON: "),
    ],
)
async def test_the_error_names_the_value_that_cannot_be_kept(intruder: HostileClient, value: str, named: str) -> None:
    body = encode_request("tools/call", {"name": "count", "arguments": {"a": "HERE"}}, id="mine")
    answer = await intruder.post(body.replace(POSITION.encode(), value.encode()), headers=CALLED_TOOL)
    assert named in assert_rejected(answer)["message"]
    assert answer.json()["id"] == "mine"


# A collection this deep in the stack calls functions of Python, which raise RecursionError.
@pytest.mark.usefixtures("without_garbage_collector")
@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("place", ["id", "arguments", "_meta", "cursor"])
async def test_deeply_nested_input_is_refused(intruder: HostileClient, place: str, levels: int) -> None:
    nested = b"[" * levels + b"]" * levels
    bodies = {
        "id": encode_request("tools/call", COUNT, id="HERE"),
        "arguments": encode_request("tools/call", {"name": "count", "arguments": {"a": "HERE"}}),
        "_meta": encode_request("tools/call", COUNT, meta={"a": "HERE"}),
        "cursor": encode_request("tools/call", {**COUNT, "cursor": "HERE"}),
    }
    assert_rejected(await intruder.post(bodies[place].replace(POSITION.encode(), nested), headers=CALLED_TOOL))


@pytest.mark.parametrize("half", ["\ud800", "a\udfffb"])
async def test_an_unpaired_surrogate_is_refused(intruder: HostileClient, half: str) -> None:
    for params in ({"name": "count", "arguments": {"a": half}}, {**COUNT, "requestState": half}):
        assert_rejected(await intruder.post(encode_request("tools/call", params), headers=CALLED_TOOL))


async def test_bytes_that_are_not_utf8_are_refused(intruder: HostileClient) -> None:
    body = encode_request("tools/call", COUNT).replace(b'"count"', b'"\xff\xfe"')
    assert assert_rejected(await intruder.post(body, headers=CALLED_TOOL))["code"] == -32700


@pytest.mark.parametrize(
    "changed",
    [
        {"mcp-method": "tools/list"},
        {"mcp-name": "hold"},
        {"mcp-method": None},
        {"mcp-protocol-version": "2026-07-29"},
        {"mcp-protocol-version": "x" * 5000},
        {"mcp-protocol-version": LEGACY},
    ],
)
async def test_headers_that_contradict_the_body_are_refused(
    intruder: HostileClient, changed: dict[str, str | None]
) -> None:
    answer = await intruder.post(encode_request("tools/call", COUNT), headers={**CALLED_TOOL, **changed})
    assert assert_rejected(answer)["code"] in {-32020, -32600}


LONG: Final = "n" * 10_000
CALLBACK: Final = "ringback/callback"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": LONG}),
        ("tools/call", {"name": f"paint__{LONG}"}),
        ("tools/call", {**COUNT, "arguments": []}),
        ("tools/call", {**COUNT, "inputResponses": 7}),
        ("tools/call", {**COUNT, "requestState": "bogus"}),
        ("tools/call", {**COUNT, "requestState": "A" * 100_000}),
        ("tools/call", []),
        ("tools/list", {"cursor": "bogus"}),
        ("tools/list", {"cursor": {}}),
        ("resources/read", {"uri": f"ringback://calls/{LONG}"}),
        ("resources/read", {"uri": "ringback://"}),
        ("resources/read", {"uri": 7}),
        ("resources/list", {"cursor": LONG}),
        ("prompts/get", {"name": LONG}),
        ("completion/complete", {"ref": {"type": "ref/nothing"}, "argument": {"name": "a", "value": "b"}}),
        ("subscriptions/listen", {"notifications": {"taskIds": [7]}}),
        ("subscriptions/listen", {"notifications": 7}),
        ("tasks/get", {"taskId": LONG}),
        ("tasks/get", {"taskId": {}}),
        ("tasks/update", {"taskId": "call_1", "inputResponses": []}),
        ("tasks/cancel", {"taskId": "\x00"}),
        ("tasks/list", {}),
        ("tasks/result", {"taskId": "call_1"}),
        ("logging/setLevel", {"level": "loud"}),
        ("initialize", {}),
        ("tools/cull", {}),
    ],
)
@pytest.mark.parametrize("path", ["/mcp", "/mcp/paint"])
async def test_invalid_params_are_refused(intruder: HostileClient, path: str, method: str, params: Any) -> None:
    assert_rejected(await intruder.send_request(method, params, path=path), 400, 404)


@pytest.mark.parametrize(
    "meta",
    [
        {CALLBACK: {"url": "https://10.0.0.1/", "secret": SECRET}},
        {CALLBACK: {"url": "https://169.254.169.254/latest", "secret": SECRET}},
        {CALLBACK: {"url": f"http://user:{SECRET}@127.0.0.1:1/"}},
        {CALLBACK: {"url": "https://[::ffff:10.0.0.1]/"}},
        {CALLBACK: {"url": f"https://x.example/{LONG}"}},
        {CALLBACK: {"url": "file:///etc/passwd"}},
        {CALLBACK: {"url": "https://x.example/", "secret": SECRET, "else": 1}},
        {CALLBACK: {"url": "https://x.example/", "secret": [SECRET]}},
        {CALLBACK: {"url": "https://x.example/", "events": ["everything"]}},
        {CALLBACK: {SECRET: 1}},
        {CALLBACK: [SECRET]},
        {CALLBACK: 7},
        {"ringback/correlationId": 7},
        {"ringback/correlationId": ""},
        {"ringback/correlationId": "x" * 257},
        {"ringback/correlationId": "a\nb"},
        {"ringback/clientSessionId": "\x00"},
        {"ringback/idempotencyKey": "\x1b[2J"},
        {"ringback/idempotencyKey": {}},
        {"progressToken": {}},
        {"progressToken": [1]},
        {"progressToken": 1.5},
    ],
)
async def test_invalid_meta_is_refused_without_showing_a_secret(intruder: HostileClient, meta: Json) -> None:
    error = assert_rejected(await intruder.send_request("tools/call", COUNT, meta=meta))
    assert error["code"] == -32602


@pytest.mark.parametrize(
    "wrong",
    [
        {"params": [SECRET]},
        {"params": SECRET},
        {"method": [SECRET]},
        {"jsonrpc": "1.0"},
        {"jsonrpc": None, "x": SECRET},
    ],
)
async def test_a_message_of_another_form_is_refused_in_words_under_its_id_in_both_eras(
    intruder: HostileClient, session: LegacyClientSession, wrong: Json
) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": "mine", "method": "ping", **wrong}).encode()
    in_session = await session.http.post(
        session.url, content=body, headers={**session.headers, "content-type": "application/json"}
    )
    for answer in (in_session, await intruder.post(body, headers={"mcp-method": "ping"})):
        error = assert_rejected(answer)
        assert (answer.json()["id"], error["code"]) == ("mine", -32600)
        assert "pydantic" not in error["message"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"result": SECRET},
        {"result": None},
        {"id": None, "result": {}},
        {"id": {}, "result": {"x": SECRET}},
        {"error": SECRET},
        {"error": {"code": SECRET, "message": "no"}},
        {"error": {"code": 1}},
    ],
)
async def test_a_response_of_another_form_is_refused_in_words(session: LegacyClientSession, wrong: Json) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, **wrong}).encode()
    answer = await session.http.post(
        session.url, content=body, headers={**session.headers, "content-type": "application/json"}
    )
    error = assert_rejected(answer)
    assert error["code"] == -32600
    assert "pydantic" not in error["message"]


@pytest.mark.parametrize("method", ["subscriptions/listen", "events/stream", "tasks/result"])
async def test_a_request_that_waits_long_is_small(
    intruder: HostileClient, session: LegacyClientSession, method: str
) -> None:
    """Its message is in memory while it waits, and a principal may have a hundred streams."""
    modern = await intruder.post(
        encode_request(method, {}, meta={"note": LARGE_TEXT}), headers=routing_headers(method, {})
    )
    legacy = await session.http.post(
        session.url,
        json={"jsonrpc": "2.0", "id": 5, "method": method, "params": {"_meta": {"note": LARGE_TEXT}}},
        headers=session.headers,
    )

    for answer in (modern, legacy):
        assert "131072 bytes at most" in answer.json()["error"]["message"]


@pytest.mark.parametrize("envelope", [7, [], "x", {}, {"io.modelcontextprotocol/protocolVersion": 7}])
async def test_an_invalid_jsonrpc_message_is_refused(intruder: HostileClient, envelope: object) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {**COUNT, "_meta": envelope}})
    assert_rejected(await intruder.post(body.encode(), headers=CALLED_TOOL))
