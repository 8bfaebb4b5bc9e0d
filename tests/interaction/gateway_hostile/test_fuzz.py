"""Every input gets a response in both eras, and never a 5xx or a traceback."""

import json
from typing import Any, Final, cast
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interaction.gateway.conftest import GatewayHarness
from tests.interaction.gateway_hostile.conftest import (
    ENVELOPE,
    HostileClient,
    count_stored_calls,
    encode_request,
    routing_headers,
)
from tests.support.mcp_wire import ACCEPT, LEGACY, MODERN, Json, LegacyClientSession

METHODS: Final = (
    *("initialize", "server/discover", "ping", "tools/list", "tools/call", "resources/list", "resources/read"),
    *("resources/subscribe", "resources/unsubscribe", "resources/templates/list", "prompts/list", "prompts/get"),
    *("completion/complete", "logging/setLevel", "tasks/get", "tasks/result", "tasks/list", "tasks/cancel"),
    *("tasks/update", "notifications/cancelled", "notifications/initialized", "notifications/progress", "nope", ""),
)
KEYS: Final = (
    *("name", "arguments", "uri", "cursor", "taskId", "inputResponses", "requestState", "task", "ttl", "ref", "type"),
    *("argument", "level", "requestId", "progressToken", "ringback/callback", "ringback/correlationId", "url", "_meta"),
)
WORDS: Final = (
    "count",
    "ask",
    "fail",
    "ringback_get_call",
    "ringback_list_calls",
    "ringback_resume",
    "ref/prompt",
    "x" * 300,
)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(WORDS)
    | st.text(max_size=20)
    | st.just("ringback://calls/call_00000000000000000000000000")
)
anything = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=8,
)
params = st.dictionaries(st.sampled_from(KEYS), anything, max_size=5) | anything
messages = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "method": st.sampled_from(METHODS)},
    optional={"id": st.integers(0, 9) | st.text(max_size=3) | scalars, "params": params, "result": anything},
)
bodies = messages | anything | st.lists(messages, max_size=2)


def well(answer: Any) -> None:
    assert answer.status_code < 500, answer.text[:500]
    assert "Traceback" not in answer.text


@pytest.mark.requirement("R25")
@given(body=bodies, path=st.sampled_from(["/mcp", "/mcp/paint"]), dressed=st.booleans())
async def test_every_modern_body_gets_a_response(
    gate: GatewayHarness, intruder: HostileClient, body: Any, path: str, *, dressed: bool
) -> None:
    """`dressed` adds the members that a request needs, so that it is processed further."""
    headers: dict[str, str | None] = {}
    if dressed and isinstance(body, dict) and "method" in body:
        message: Json = {"id": 1, "params": {}, **body}
        if isinstance(message["params"], dict):
            message["params"] = {**cast("Json", message["params"]), "_meta": ENVELOPE}
        body, headers = message, routing_headers(message["method"], message["params"])
    well(await intruder.post(json.dumps(body).encode(), path=path, headers=headers))


@given(body=bodies)
async def test_every_body_in_a_session_gets_a_response(
    gate: GatewayHarness, session: LegacyClientSession, body: Any
) -> None:
    headers = {**session.headers, "content-type": "application/json"}
    well(await gate.http.post(session.url, content=json.dumps(body).encode(), headers=headers))


@given(body=st.binary(max_size=60), version=st.sampled_from([MODERN, LEGACY, "", "x"]))
async def test_all_bytes_get_a_response(intruder: HostileClient, body: bytes, version: str) -> None:
    well(await intruder.post(body, headers={"mcp-protocol-version": version}))


HEADERS: Final = (
    "mcp-session-id",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
    "accept",
    "last-event-id",
    "origin",
)
printable = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), max_size=40)


@given(
    headers=st.dictionaries(st.sampled_from(HEADERS), printable, max_size=4),
    method=st.sampled_from(["GET", "DELETE", "PUT", "HEAD", "OPTIONS", "PATCH"]),
)
async def test_all_headers_get_a_response(
    gate: GatewayHarness, intruder: HostileClient, headers: dict[str, str], method: str
) -> None:
    sent = {**ACCEPT, **headers, "authorization": f"Bearer {intruder.key}"}
    well(await gate.http.request(method, f"{gate.url}/mcp/paint", headers=sent))


# -- options in headers and in the URL (no `_meta`) ------------------------------------------------------------------------

OPTION_HEADERS: Final = (
    *("Ringback-Client-Session-Id", "Ringback-Correlation-Id", "Ringback-Idempotency-Key", "Ringback-Callback-Url"),
    *("Ringback-Callback-Secret", "traceparent", "Ringback-Nothing"),
)
OPTION_PARAMETERS: Final = (
    *("client_session_id", "correlation_id", "callback_url", "webhook", "callback_secret", "idempotency_key"),
    *("clientSessionId", "", "nothing"),
)
OPTION_VALUES: Final = (
    *(
        "",
        "s-1",
        "x" * 257,
        "x" * 3000,
        "https://example.com/x",
        "https://127.0.0.1:1/x",
        "https://10.0.0.1/",
        "http://[::",
    ),
    *(
        "https://user:pass@example.com/",
        "https://example.com:99999/",
        "javascript:1",
        "wh_",
        "wh_01JZZZZZZZZZZZZZZZZZZZZZZZ",
    ),
    *("whsec_", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "00-trace", "ä", "\u2028", "\x00", "a\nb"),
)
UNSENDABLE: Final = frozenset(b"\x00\n\x0b\x0c\r")
"""Bytes that the client's HTTP library refuses in a header."""
header_values = st.sampled_from(OPTION_VALUES).map(str.encode) | st.binary(max_size=40)
option_headers = st.lists(st.tuples(st.sampled_from(OPTION_HEADERS).map(str.encode), header_values), max_size=4)
option_queries = st.lists(
    st.tuples(st.sampled_from(OPTION_PARAMETERS), st.sampled_from(OPTION_VALUES) | st.text(max_size=20)), max_size=4
).map(lambda pairs: urlencode(pairs, errors="surrogatepass")) | st.text(
    st.characters(min_codepoint=0x21, max_codepoint=0x7E, exclude_characters="#"), max_size=40
)


@pytest.mark.requirement("R25")
@given(headers=option_headers, query=option_queries, path=st.sampled_from(["/mcp", "/mcp/paint"]))
async def test_all_options_in_headers_and_in_the_url_get_a_response_and_leave_nothing_half_made(
    gate: GatewayHarness, intruder: HostileClient, headers: list[tuple[bytes, bytes]], query: str, path: str
) -> None:
    before = count_stored_calls(gate)
    params: Json = {"name": "count" if path == "/mcp/paint" else "paint__count", "arguments": {}}
    sent = {**routing_headers("tools/call", params), "mcp-protocol-version": MODERN, "content-type": "application/json"}
    names = {**ACCEPT, **sent, "authorization": f"Bearer {intruder.key}"}
    raw = [(name.encode(), value.encode()) for name, value in names.items() if value is not None]
    sendable = [(name, value) for name, value in headers if not UNSENDABLE & set(value) and value == value.strip()]

    answer = await gate.http.post(
        f"{gate.url}{path}?{query}", content=encode_request("tools/call", params), headers=[*raw, *sendable]
    )

    well(answer)
    started = '"result"' in answer.text
    assert count_stored_calls(gate) - before <= started


@given(query=option_queries)
async def test_all_urls_get_a_response_to_the_handshake(
    gate: GatewayHarness, intruder: HostileClient, query: str
) -> None:
    params: Json = {}
    well(await intruder.send_request("server/discover", params, path=f"/mcp/paint?{query}"))
