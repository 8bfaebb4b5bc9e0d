"""Changes of upstreams reach pollers and streams that have no webhook, and what an upstream offers as events of its own."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from ringback.domain.principal import DEFAULT_SCOPES
from tests.interaction.gateway.conftest import GatewayHarness
from tests.interaction.gateway.test_event_polls import NOTHING_DECLARED, call_echo
from tests.interaction.gateway.test_event_streams import ACTIVE, EVENT, open_stream
from tests.support.api_server import serving_api
from tests.support.application import running_application
from tests.support.engine import wait_until
from tests.support.event_upstream import EVENT_NAME, LOG_NAME, UPSTREAM_NAME, EventUpstream
from tests.support.library_upstream import BOOK_URI
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, JsonRpcErrorResponse, ModernClient
from tests.support.upstreams import make_http_config, serving

UPSTREAMS: Final = ("library", "plain")

CHANGED: Final = "upstream.changed"


async def test_changes_reach_streams_and_polls_of_a_principal_without_a_webhook(gate: GatewayHarness) -> None:
    client = await gate.make_modern_client("library", principal="changes")
    async with (
        open_stream(client, CHANGED, arguments={"uri": BOOK_URI}) as book,
        open_stream(client, CHANGED) as lists,
    ):
        await book.read_message(ACTIVE)
        active = await lists.read_message(ACTIVE)
        await asyncio.wait_for(gate.library.wait_until_subscribed(BOOK_URI), WAIT_SECONDS)
        await gate.library.publish_resource_change(BOOK_URI)
        await gate.library.publish_list_changes()
        changed_book = (await book.read_message(EVENT))["params"]
        changed_list = (await lists.read_message(EVENT))["params"]

    # Which of the two changes is first in the log is open. With a limit of one event, a page may have none and more after it.
    wanted = {"name": CHANGED, "cursor": active["params"]["cursor"]}
    page = await client.request("events/poll", wanted, declare=NOTHING_DECLARED)
    assert changed_book["data"] == {"upstream": "library", "change": "resource", "uri": BOOK_URI}
    assert "uri" not in changed_list["data"]
    assert page["events"][0]["eventId"] == changed_list["eventId"]


@pytest.mark.parametrize("upstream", ["nowhere", "x" * 24])
async def test_changes_of_an_unknown_upstream_are_forbidden(gate: GatewayHarness, upstream: str) -> None:
    client = await gate.make_modern_client(None)

    wanted = {"name": CHANGED, "arguments": {"upstream": upstream}}
    with pytest.raises(JsonRpcErrorResponse) as refused:
        await client.request("events/poll", wanted, declare=NOTHING_DECLARED)

    assert refused.value.code == -32012


async def test_a_first_poll_of_changes_has_missed_nothing_without_a_cursor_and_repeatedly_something_with_an_old_one(
    gate: GatewayHarness,
) -> None:
    client = await gate.make_modern_client("library", principal="late")
    await call_echo(await gate.make_modern_client("plain", principal="late"))
    start = (await client.request("events/poll", {"name": "call.finished"}, declare=NOTHING_DECLARED))["cursor"]

    async def poll_changes(cursor: str | None) -> Json:
        return await client.request("events/poll", {"name": CHANGED, "cursor": cursor}, declare=NOTHING_DECLARED)

    first = await poll_changes(None)
    pages = [await poll_changes(cursor) for cursor in (first["cursor"], start, start)]

    assert [page["truncated"] for page in (first, *pages)] == [False, False, True, True]


# -- event types of an upstream --


@pytest.fixture
async def github(tmp_path: Path) -> AsyncGenerator[tuple[EventUpstream, ModernClient, ModernClient]]:
    """An upstream with events of its own, a client at its endpoint, and one at `/mcp`."""
    upstream = EventUpstream()
    async with serving_events(tmp_path, upstream) as (own, joined):
        yield upstream, own, joined


@asynccontextmanager
async def serving_events(tmp_path: Path, upstream: EventUpstream) -> AsyncGenerator[tuple[ModernClient, ModernClient]]:
    async with (
        serving(upstream.app()) as server,
        running_application(
            tmp_path, make_http_config(server.url, name=UPSTREAM_NAME), allowed_hosts=("127.0.0.1",)
        ) as ringback,
        serving_api(ringback.app.api) as url,
        httpx.AsyncClient(timeout=WAIT_SECONDS) as http,
    ):
        keys = ringback.app.services.api_keys
        _, key = await keys.create_key("alice", name="test", scopes=DEFAULT_SCOPES, upstreams=None)
        yield ModernClient(http, f"{url}/mcp/{UPSTREAM_NAME}", key), ModernClient(http, f"{url}/mcp", key)


async def wait_until_listed(client: ModernClient, name: str) -> None:
    """Wait until the upstream was asked for its event types."""

    async def is_listed() -> bool:
        listed = await client.request("events/list", {}, declare=NOTHING_DECLARED)
        return name in [each["name"] for each in listed["events"]]

    await wait_until(is_listed)


async def test_a_client_subscribes_to_changes_of_the_event_types(gate: GatewayHarness) -> None:
    client = await gate.make_modern_client("plain")

    async with client.open_subscription({"eventsListChanged": True}) as changes:
        accepted = await changes.read_message()

    assert accepted["params"]["notifications"] == {"eventsListChanged": True}


async def test_an_upstreams_event_types_are_polled_and_streamed_under_its_own_names_at_its_endpoint(
    github: tuple[EventUpstream, ModernClient, ModernClient],
) -> None:
    upstream, own, joined = github
    await wait_until_listed(own, EVENT_NAME)
    start = await joined.request("events/poll", {"name": LOG_NAME, "arguments": {}}, declare=NOTHING_DECLARED)

    async with open_stream(own, EVENT_NAME) as frames:
        await frames.read_message(ACTIVE)
        upstream.emit(EVENT_NAME, {"repo": "a"})
        streamed = (await frames.read_message(EVENT))["params"]

    wanted: dict[str, Any] = {"name": LOG_NAME, "arguments": {}, "cursor": start["cursor"]}
    (polled,) = (await joined.request("events/poll", wanted, declare=NOTHING_DECLARED))["events"]
    assert (streamed["name"], polled["name"]) == (EVENT_NAME, LOG_NAME)
    assert streamed["eventId"] == polled["eventId"]
    assert streamed["data"] == polled["data"] == {"repo": "a"}
    assert streamed["timestamp"] == "2026-11-20T17:00:00.000Z"


async def test_an_open_stream_says_that_the_upstream_has_lost_events(tmp_path: Path) -> None:
    upstream = EventUpstream(modes=["poll"])
    async with serving_events(tmp_path, upstream) as (own, _):
        await wait_until_listed(own, EVENT_NAME)
        async with open_stream(own, EVENT_NAME) as frames:
            first = (await frames.read_message(ACTIVE))["params"]
            upstream.emit("another.name", {})
            upstream.lost_before = len(upstream.log) + 1
            upstream.emit(EVENT_NAME, {"number": 1})
            upstream.emit(EVENT_NAME, {"number": 2})
            again = (await frames.read_message(ACTIVE))["params"]
            event = (await frames.read_message(EVENT))["params"]

    assert (first["truncated"], again["truncated"]) == (False, True)
    assert again["cursor"] == first["cursor"]
    assert event["data"] == {"number": 2}


async def test_a_type_of_an_upstream_with_a_name_of_ringbacks_own_is_listed_at_the_common_endpoint_only(
    tmp_path: Path,
) -> None:
    upstream = EventUpstream(names=[EVENT_NAME, "call.finished"])
    async with serving_events(tmp_path, upstream) as (own, joined):
        await wait_until_listed(own, EVENT_NAME)
        own_list, joined_list = [
            (await client.request("events/list", {}, declare=NOTHING_DECLARED))["events"] for client in (own, joined)
        ]

    (finished,) = [each for each in own_list if each["name"] == "call.finished"]
    assert "call_id" in finished["inputSchema"]["properties"]
    assert f"{UPSTREAM_NAME}/call.finished" in [each["name"] for each in joined_list]
