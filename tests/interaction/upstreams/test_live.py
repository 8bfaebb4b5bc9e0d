"""What upstreams tell about running calls while it happens: progress to all who listen, messages to those who asked."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from ringback.domain.call import Call, Progress
from ringback.domain.ids import CallId
from ringback.domain.upstreams import UpstreamNotification
from ringback.runner import live as live_module
from ringback.runner.config import Isolation
from ringback.runner.live import NotificationHub
from ringback.runner.upstreams import UpstreamRegistry
from tests.support.desks import PaperDesk
from tests.support.examples import CALL
from tests.support.library import ERAS, NAME, Library
from tests.support.upstreams import WAIT_SECONDS, http_config, opened, python_config, serving

OTHER = CallId("call_01KAGZ8A000000000000000009")
ABOUT = Progress(progress=1, total=2, message="half")


def a_call(call_id: CallId = CALL.id, **arguments: Any) -> Call:
    return replace(CALL, id=call_id, upstream=NAME, tool="talk", arguments=arguments)


async def talk(upstreams: UpstreamRegistry, call: Call) -> None:
    async with asyncio.timeout(WAIT_SECONDS), upstreams.open_call_session(call) as session:
        await session.run_call(PaperDesk(call))


async def told(stream: AsyncIterator[UpstreamNotification], count: int) -> list[UpstreamNotification]:
    async with asyncio.timeout(WAIT_SECONDS):
        return [await anext(stream) for _ in range(count)]


@pytest.mark.parametrize("era", ERAS)
async def test_messages_of_a_call_reach_whoever_asked_from_their_level_on(era: str) -> None:
    library = Library()
    async with serving(library.app(era)) as server, opened(http_config(server.url, name=NAME)) as upstreams:
        with (
            upstreams.notification_hub.subscribe_call(CALL.id, log_level="warning") as some,
            upstreams.notification_hub.subscribe_call(CALL.id, log_level="debug") as everything,
            upstreams.notification_hub.subscribe_call(CALL.id) as nothing,
        ):
            await talk(upstreams, a_call(levels=["debug", "error"]))
            heard = await told(everything, 2)
            severe = await told(some, 1)
            upstreams.notification_hub.publish_progress(CALL.id, ABOUT)

            assert [(each.method, each.params["level"]) for each in heard] == [
                ("notifications/message", "debug"),
                ("notifications/message", "error"),
            ]
            assert severe == heard[1:]
            assert [each.method for each in await told(nothing, 1)] == ["notifications/progress"]


@pytest.mark.parametrize("era", ERAS)
async def test_calls_that_run_at_once_hear_their_own_messages_only(era: str) -> None:
    async with serving(Library().app(era)) as server, opened(http_config(server.url, name=NAME)) as upstreams:
        with (
            upstreams.notification_hub.subscribe_call(CALL.id, log_level="debug") as mine,
            upstreams.notification_hub.subscribe_call(OTHER, log_level="debug") as others,
        ):
            await asyncio.gather(
                talk(upstreams, a_call(levels=["info"] * 5)), talk(upstreams, a_call(OTHER, levels=["error"] * 5))
            )

            assert {each.params["level"] for each in await told(mine, 5)} == {"info"}
            assert {each.params["level"] for each in await told(others, 5)} == {"error"}


async def test_a_message_that_comes_on_no_calls_stream_is_dropped_in_a_shared_session() -> None:
    async with serving(Library().app("legacy")) as server, opened(http_config(server.url, name=NAME)) as upstreams:
        with upstreams.notification_hub.subscribe_call(CALL.id, log_level="debug") as stream:
            await talk(upstreams, a_call(levels=["error"], aside=True))
            await talk(upstreams, a_call(levels=["info"]))

            assert (await told(stream, 1))[0].params["level"] == "info"


async def test_in_a_session_of_its_own_a_call_sets_the_level_and_hears_all() -> None:
    library = Library()
    async with serving(library.app("legacy")) as server:
        config = replace(http_config(server.url, name=NAME), isolation=Isolation.CALL)
        async with opened(config) as upstreams:
            with upstreams.notification_hub.subscribe_call(CALL.id, log_level="notice") as stream:
                await talk(upstreams, a_call(levels=["error"]))

                assert (await told(stream, 1))[0].params["level"] == "error"
    assert library.levels == ["notice"]


async def test_on_a_pipe_the_only_call_that_asked_hears_its_messages() -> None:
    async with opened(python_config("-m", "tests.support.library", name=NAME)) as upstreams:
        with upstreams.notification_hub.subscribe_call(CALL.id, log_level="debug") as stream:
            await asyncio.gather(
                talk(upstreams, a_call(levels=["info"])), talk(upstreams, a_call(OTHER, levels=["error"]))
            )
            upstreams.notification_hub.publish_progress(CALL.id, ABOUT)

            heard = await told(stream, 2)
    assert [each.params.get("level") for each in heard] == ["info", None]


@pytest.mark.parametrize("era", ERAS)
async def test_nobody_asks_for_messages_that_nobody_wants(era: str) -> None:
    library = Library()
    async with serving(library.app(era)) as server, opened(http_config(server.url, name=NAME)) as upstreams:
        with upstreams.notification_hub.subscribe_call(CALL.id) as stream:
            await talk(upstreams, a_call(levels=["error"]))
            upstreams.notification_hub.publish_progress(CALL.id, ABOUT)

            assert [each.method for each in await told(stream, 1)] == ["notifications/progress"]
    assert library.levels == []


# -- the hub ------------------------------------------------------------------------------------------------------------


async def test_progress_reaches_everybody_who_listens_to_the_call_and_nobody_else() -> None:
    hub = NotificationHub()
    with hub.subscribe_call(CALL.id) as one, hub.subscribe_call(CALL.id) as two, hub.subscribe_call(OTHER) as other:
        hub.publish_progress(CALL.id, ABOUT)
        hub.publish_progress(OTHER, Progress(progress=3))

        expected = UpstreamNotification(method="notifications/progress", params={"progress": 1, "total": 2, "message": "half"})
        assert await told(one, 1) == await told(two, 1) == [expected]
        assert await told(other, 1) == [UpstreamNotification(method="notifications/progress", params={"progress": 3})]
    hub.publish_progress(CALL.id, ABOUT)
    assert hub.get_log_level(CALL.id) is None


async def test_whoever_does_not_keep_up_misses_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_module, "WAITING_MAX", 2)
    hub = NotificationHub()
    with hub.subscribe_call(CALL.id) as stream:
        for step in range(5):
            hub.publish_progress(CALL.id, Progress(progress=step))

        assert [each.params["progress"] for each in await told(stream, 2)] == [3, 4]


async def test_messages_are_passed_on_without_what_is_between_neighbours_and_huge_ones_not_at_all() -> None:
    hub = NotificationHub()
    with hub.subscribe_call(CALL.id, log_level="info") as stream:
        hub.publish_log_message(CALL.id, {"level": "info", "data": "x" * live_module.LOG_MESSAGE_BYTES_MAX})
        hub.publish_log_message(CALL.id, {"level": "loud", "data": "what?"})
        hub.publish_log_message(CALL.id, {"data": "no level"})
        meta: dict[str, Any] = {"io.modelcontextprotocol/serverInfo": {}, "progressToken": 1, "own": True}
        hub.publish_log_message(CALL.id, {"level": "error", "data": {"why": None}, "_meta": meta})

        expected = {"level": "error", "data": {"why": None}, "_meta": {"own": True}}
        assert [each.params for each in await told(stream, 1)] == [expected]
