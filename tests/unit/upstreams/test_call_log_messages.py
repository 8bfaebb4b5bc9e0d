"""A log message outside the context of a request belongs to the only subscribed call, or is dropped."""

from collections.abc import AsyncGenerator, Mapping
from typing import Any

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification

from ringback.upstreams.session_dispatcher import SessionDispatcher

MESSAGE = {"level": "info", "data": "…"}


class LogMessageHarness:
    """A dispatcher on a pipe, and the received messages."""

    def __init__(self, send: Any) -> None:
        self._send = send
        self.messages: list[str] = []
        self._arrived = anyio.Event()

    def request_log_level(self, name: str) -> Any:
        def on_message(params: Mapping[str, Any]) -> None:
            assert params == MESSAGE
            self.messages.append(name)

        return on_message

    async def receive_message(self, method: str = "notifications/message") -> None:
        """Have the upstream say it, and the dispatcher take it."""
        self._arrived = anyio.Event()
        await self._send.send(SessionMessage(JSONRPCNotification(jsonrpc="2.0", method=method, params=MESSAGE)))
        await self._arrived.wait()

    async def notified(self, *_: Any) -> None:
        self._arrived.set()


@pytest.fixture
async def line() -> AsyncGenerator[tuple[LogMessageHarness, SessionDispatcher]]:
    send, read = anyio.create_memory_object_stream[Any](0)
    write, sent = anyio.create_memory_object_stream[Any](0)
    line, dispatcher = LogMessageHarness(send), SessionDispatcher(read, write)

    async def refuse(*_: Any) -> dict[str, Any]:
        raise AssertionError

    async with sent, anyio.create_task_group() as group:
        await group.start(dispatcher.run, refuse, line.notified)
        yield line, dispatcher
        await send.aclose()


async def test_a_message_belongs_to_the_only_subscribed_call(line: tuple[LogMessageHarness, SessionDispatcher]) -> None:
    harness, dispatcher = line
    with dispatcher.receive_log_messages(harness.request_log_level("one"), includes_unrelated=True):
        await harness.receive_message()
        await harness.receive_message("notifications/other")
    await harness.receive_message()

    assert harness.messages == ["one"]


async def test_a_message_that_may_belong_to_several_calls_is_dropped(
    line: tuple[LogMessageHarness, SessionDispatcher],
) -> None:
    harness, dispatcher = line
    with dispatcher.receive_log_messages(harness.request_log_level("one"), includes_unrelated=True):
        with dispatcher.receive_log_messages(harness.request_log_level("other"), includes_unrelated=True):
            await harness.receive_message()
        await harness.receive_message()

    assert harness.messages == ["one"]


async def test_a_call_with_its_own_stream_gets_no_other_messages(
    line: tuple[LogMessageHarness, SessionDispatcher],
) -> None:
    harness, dispatcher = line
    with dispatcher.receive_log_messages(harness.request_log_level("one"), includes_unrelated=False):
        await harness.receive_message()

    assert harness.messages == []
