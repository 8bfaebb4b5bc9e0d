"""Every input gets a response in both eras, and never a 5xx or a traceback."""

import json
from typing import Any, Final, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.interaction.gateway.conftest import GatewayHarness
from tests.interaction.gateway_hostile.conftest import ENVELOPE, HostileClient, routing_headers
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
