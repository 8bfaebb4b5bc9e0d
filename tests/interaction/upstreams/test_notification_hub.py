"""Progress of running calls reaches every subscriber; log messages reach those that request them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from ringback.domain.call import Call, Progress
from ringback.domain.ids import CallId
from ringback.domain.upstreams import UpstreamNotification
from ringback.upstreams import notification_hub
from ringback.upstreams.config import Isolation
from ringback.upstreams.notification_hub import NotificationHub
from ringback.upstreams.registry import UpstreamRegistry
from tests.support.examples import CALL
from tests.support.library_upstream import ERAS, UPSTREAM_NAME, LibraryUpstream
from tests.support.recording_call_context import RecordingCallContext
from tests.support.upstreams import (
    WAIT_SECONDS,
    make_http_config,
    make_python_config,
    open_bound_driver,
    open_upstreams,
    serving,
)

OTHER_CALL = CallId("call_01KAGZ8A000000000000000009")
CALL_META = Progress(progress=1, total=2, message="half")


def make_call(call_id: CallId = CALL.id, **arguments: Any) -> Call:
    return replace(CALL, id=call_id, upstream=UPSTREAM_NAME, tool="talk", arguments=arguments)


async def call_talk_tool(upstreams: UpstreamRegistry, call: Call) -> None:
    async with asyncio.timeout(WAIT_SECONDS), open_bound_driver(upstreams, call) as session:
        await session.run_call(RecordingCallContext(call))


async def read_notifications(stream: AsyncIterator[UpstreamNotification], count: int) -> list[UpstreamNotification]:
    async with asyncio.timeout(WAIT_SECONDS):
        return [await anext(stream) for _ in range(count)]


@pytest.mark.parametrize("era", ERAS)
async def test_log_messages_reach_subscribers_from_their_level_on(era: str) -> None:
    library = LibraryUpstream()
    async with (
        serving(library.app(era)) as server,
        open_upstreams(make_http_config(server.url, name=UPSTREAM_NAME)) as upstreams,
    ):
        with (
            upstreams.notification_hub.subscribe_call(CALL.id, log_level="warning") as some,
            upstreams.notification_hub.subscribe_call(CALL.id, log_level="debug") as everything,
            upstreams.notification_hub.subscribe_call(CALL.id) as nothing,
        ):
            await call_talk_tool(upstreams, make_call(levels=["debug", "error"]))
            received = await read_notifications(everything, 2)
            severe = await read_notifications(some, 1)
            upstreams.notification_hub.publish_progress(CALL.id, CALL_META)

            assert [(each.method, each.params["level"]) for each in received] == [
                ("notifications/message", "debug"),
                ("notifications/message", "error"),
            ]
            assert severe == received[1:]
            assert [each.method for each in await read_notifications(nothing, 1)] == ["notifications/progress"]


@pytest.mark.parametrize("era", ERAS)
async def test_concurrent_calls_get_their_own_log_messages_only(era: str) -> None:
    async with (
        serving(LibraryUpstream().app(era)) as server,
        open_upstreams(make_http_config(server.url, name=UPSTREAM_NAME)) as upstreams,
    ):
        with (
            upstreams.notification_hub.subscribe_call(CALL.id, log_level="debug") as mine,
            upstreams.notification_hub.subscribe_call(OTHER_CALL, log_level="debug") as others,
        ):
            await asyncio.gather(
                call_talk_tool(upstreams, make_call(levels=["info"] * 5)),
                call_talk_tool(upstreams, make_call(OTHER_CALL, levels=["error"] * 5)),
            )

            assert {each.params["level"] for each in await read_notifications(mine, 5)} == {"info"}
            assert {each.params["level"] for each in await read_notifications(others, 5)} == {"error"}


async def test_a_message_that_comes_on_no_calls_stream_is_dropped_in_a_shared_session() -> None:
    async with (
        serving(LibraryUpstream().app("legacy")) as server,
        open_upstreams(make_http_config(server.url, name=UPSTREAM_NAME)) as upstreams,
    ):
        with upstreams.notification_hub.subscribe_call(CALL.id, log_level="debug") as stream:
            await call_talk_tool(upstreams, make_call(levels=["error"], aside=True))
            await call_talk_tool(upstreams, make_call(levels=["info"]))

            assert (await read_notifications(stream, 1))[0].params["level"] == "info"


async def test_a_call_in_its_own_session_sets_the_level_and_gets_all_messages() -> None:
    library = LibraryUpstream()
    async with serving(library.app("legacy")) as server:
        config = replace(make_http_config(server.url, name=UPSTREAM_NAME), isolation=Isolation.CALL)
        async with open_upstreams(config) as upstreams:
            with upstreams.notification_hub.subscribe_call(CALL.id, log_level="notice") as stream:
                await call_talk_tool(upstreams, make_call(levels=["error"]))

                assert (await read_notifications(stream, 1))[0].params["level"] == "error"
    assert library.levels == ["notice"]


async def test_over_stdio_the_only_subscribed_call_gets_the_messages() -> None:
    async with open_upstreams(
        make_python_config("-m", "tests.support.library_upstream", name=UPSTREAM_NAME)
    ) as upstreams:
        with upstreams.notification_hub.subscribe_call(CALL.id, log_level="debug") as stream:
            await asyncio.gather(
                call_talk_tool(upstreams, make_call(levels=["info"])),
                call_talk_tool(upstreams, make_call(OTHER_CALL, levels=["error"])),
            )
            upstreams.notification_hub.publish_progress(CALL.id, CALL_META)

            received = await read_notifications(stream, 2)
    assert [each.params.get("level") for each in received] == ["info", None]


@pytest.mark.parametrize("era", ERAS)
async def test_no_level_is_set_without_a_subscriber(era: str) -> None:
    library = LibraryUpstream()
    async with (
        serving(library.app(era)) as server,
        open_upstreams(make_http_config(server.url, name=UPSTREAM_NAME)) as upstreams,
    ):
        with upstreams.notification_hub.subscribe_call(CALL.id) as stream:
            await call_talk_tool(upstreams, make_call(levels=["error"]))
            upstreams.notification_hub.publish_progress(CALL.id, CALL_META)

            assert [each.method for each in await read_notifications(stream, 1)] == ["notifications/progress"]
    assert library.levels == []


# -- the hub ------------------------------------------------------------------------------------------------------------


async def test_progress_reaches_every_subscriber_of_the_call_and_no_other() -> None:
    hub = NotificationHub()
    with (
        hub.subscribe_call(CALL.id) as one,
        hub.subscribe_call(CALL.id) as two,
        hub.subscribe_call(OTHER_CALL) as other,
    ):
        hub.publish_progress(CALL.id, CALL_META)
        hub.publish_progress(OTHER_CALL, Progress(progress=3))

        expected = UpstreamNotification(
            method="notifications/progress", params={"progress": 1, "total": 2, "message": "half"}
        )
        assert await read_notifications(one, 1) == await read_notifications(two, 1) == [expected]
        assert await read_notifications(other, 1) == [
            UpstreamNotification(method="notifications/progress", params={"progress": 3})
        ]
    hub.publish_progress(CALL.id, CALL_META)
    assert hub.get_log_level(CALL.id) is None


async def test_a_slow_subscriber_misses_the_oldest_notifications(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notification_hub, "QUEUED_NOTIFICATIONS_MAX", 2)
    hub = NotificationHub()
    with hub.subscribe_call(CALL.id) as stream:
        for step in range(5):
            hub.publish_progress(CALL.id, Progress(progress=step))

        assert [each.params["progress"] for each in await read_notifications(stream, 2)] == [3, 4]


async def test_log_messages_lose_hop_by_hop_meta_and_huge_ones_are_dropped() -> None:
    hub = NotificationHub()
    with hub.subscribe_call(CALL.id, log_level="info") as stream:
        hub.publish_log_message(CALL.id, {"level": "info", "data": "x" * notification_hub.LOG_MESSAGE_BYTES_MAX})
        hub.publish_log_message(CALL.id, {"level": "loud", "data": "what?"})
        hub.publish_log_message(CALL.id, {"data": "no level"})
        meta: dict[str, Any] = {"io.modelcontextprotocol/serverInfo": {}, "progressToken": 1, "own": True}
        hub.publish_log_message(CALL.id, {"level": "error", "data": {"why": None}, "_meta": meta})

        expected = {"level": "error", "data": {"why": None}, "_meta": {"own": True}}
        assert [each.params for each in await read_notifications(stream, 1)] == [expected]
