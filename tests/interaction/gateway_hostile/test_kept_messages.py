"""What outlives a request keeps nothing of its message and its headers, which may be as large as a request may be.

A principal has a thousand sessions at one endpoint. Each has 256 subscriptions and tasks, and is idle for half an hour.
"""

import gc
from collections.abc import AsyncGenerator, Sequence
from typing import Any, Final
from urllib.parse import SplitResult

import pytest

from tests.interaction.gateway.conftest import GatewayHarness
from tests.support.mcp_wire import LEGACY, Json, LegacyClientSession

UPSTREAMS: Final = ("paint",)

pytestmark = pytest.mark.requirement("R25")

LARGE: Final = 200_000
"""Characters of the text that must not be kept."""
MARK: Final = "kept-message"
TEXT: Final = MARK + "x" * LARGE
META: Final[Json] = {"io.modelcontextprotocol/note": TEXT}
"""A key that no upstream gets and no call stores."""
HEADER: Final = MARK + "h" * 15_000
"""A header, or a query, that must not be kept."""
BYTES: Final = (bytes, bytearray)


def find_kept(size: int = LARGE) -> Sequence[Any]:
    """The types of what refers to a text or to bytes with the mark, of at least this size."""
    gc.collect()
    owners = gc.get_objects()
    # One call for all of them is several times cheaper than one each, and in most tests there is nothing to name.
    if not any(_is_marked(each, size) for each in gc.get_referents(*owners)):
        return []
    return [type(owner) for owner in owners if any(_is_marked(each, size) for each in gc.get_referents(owner))]


def _is_marked(value: object, size: int) -> bool:
    if isinstance(value, str):
        return len(value) >= size and value is not TEXT and value is not HEADER and MARK in value
    return isinstance(value, BYTES) and len(value) >= size and MARK.encode() in value


@pytest.fixture
async def session(gate: GatewayHarness) -> AsyncGenerator[LegacyClientSession]:
    """A session whose own stream is open."""
    async with gate.open_legacy_session(principal="mallory") as session, session.open_event_stream():
        yield session


async def send(session: LegacyClientSession, method: str, params: Json, **rest: Any) -> None:
    message = {"jsonrpc": "2.0", "method": method, "params": params, **rest}
    answer = await session.http.post(session.url, json=message, headers=session.headers)
    assert answer.is_success, answer.text[:500]


async def test_a_session_keeps_nothing_of_initialize_that_it_does_not_need(gate: GatewayHarness) -> None:
    client_info: Json = {"name": "icon", "version": "1", "websiteUrl": TEXT, "icons": [{"src": f"data:{TEXT}"}]}
    params: Json = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": client_info, "_meta": META}
    async with gate.open_legacy_session(principal="mallory") as session:
        headers = {name: value for name, value in session.headers.items() if not name.startswith("mcp-")}
        session.headers = headers
        await send(session, "initialize", params, id=1)

    assert find_kept() == []


async def test_a_session_keeps_nothing_of_initialized(session: LegacyClientSession) -> None:
    await send(session, "notifications/initialized", {"_meta": META})
    await session.request("ping", {})

    assert find_kept() == []


async def test_a_session_keeps_no_long_id(session: LegacyClientSession) -> None:
    await send(session, "ping", {}, id=TEXT)

    assert find_kept() == []


async def test_a_subscription_keeps_nothing_of_its_request(session: LegacyClientSession) -> None:
    call_id = (await session.request("tools/call", {"name": "hold", "arguments": {}}))["_meta"]["ringback/callId"]
    await send(session, "resources/subscribe", {"uri": f"ringback://calls/{call_id}", "_meta": META}, id="sub")

    assert find_kept() == []


async def test_a_running_task_keeps_nothing_of_the_request_that_created_it(session: LegacyClientSession) -> None:
    meta = {**META, "progressToken": TEXT}
    await send(session, "tools/call", {"name": "hold", "arguments": {}, "task": {}, "_meta": meta}, id="task")

    assert find_kept() == []


async def test_a_session_its_subscriptions_and_tasks_keep_no_headers_and_no_query(session: LegacyClientSession) -> None:
    call_id = (await session.request("tools/call", {"name": "hold", "arguments": {}}))["_meta"]["ringback/callId"]
    sent, marked = session.headers, {**session.headers, "x-large": HEADER}
    url, session.url = session.url, f"{session.url}?unread={MARK}{'q' * 15_000}"
    session.headers = marked
    await send(session, "notifications/initialized", {})
    await send(session, "resources/subscribe", {"uri": f"ringback://calls/{call_id}"}, id="sub")
    await send(session, "tools/call", {"name": "hold", "arguments": {}, "task": {}}, id="task")
    await send(session, "ping", {}, id="ping")
    session.headers, session.url = sent, url
    marked.clear()
    await session.request("ping", {})

    kept = find_kept(len(HEADER))
    assert [each for each in kept if each is not SplitResult] == []  # the standard library caches 128 URLs
