"""Messages from several tasks to one: in order, with the context of the sender, at most so many at once."""

import asyncio
from contextvars import ContextVar
from typing import Final

import anyio
import pytest

from ringback.mcp_server.message_queue import MessageQueue
from tests.support.limits import WAIT_SECONDS

SENDER: Final = ContextVar[str]("sender")


async def send_as(stream: MessageQueue[str], sender: str, *messages: str) -> None:
    SENDER.set(sender)
    for message in messages:
        await stream.send(message)


async def test_each_message_comes_with_the_context_of_its_sender() -> None:
    stream, received = MessageQueue[str](waiting_max=4), list[tuple[str, str]]()
    await asyncio.gather(send_as(stream, "a", "1", "2"), send_as(stream, "b", "3"))
    stream.close()

    async for message in stream:
        assert stream.last_context is not None
        received.append((message, stream.last_context[SENDER]))
    assert received == [("1", "a"), ("2", "a"), ("3", "b")]


async def test_a_sender_waits_while_the_stream_is_full() -> None:
    stream, sent = MessageQueue[str](waiting_max=1), list[str]()

    async def send_all() -> None:
        for message in ("1", "2", "3"):
            await stream.send(message)
            sent.append(message)

    sending = asyncio.create_task(send_all())
    async with asyncio.timeout(WAIT_SECONDS):
        for received, count in ("1", 1), ("2", 2), ("3", 3):
            await asyncio.sleep(0)
            assert len(sent) == count
            assert await stream.receive() == received
        await sending


async def test_a_later_sender_does_not_overtake_those_that_wait() -> None:
    stream, received, sending = MessageQueue[str](waiting_max=1), list[str](), list[asyncio.Task[None]]()

    async def receive_all() -> None:
        received.extend([message async for message in stream])

    receiving = asyncio.create_task(receive_all())
    messages = ["request 1", "request 2", "request 3", "cancellation of 3", "request 4"]
    for together in messages[:3], messages[3:4], messages[4:]:
        sending.extend(asyncio.create_task(stream.send(message)) for message in together)
        await asyncio.sleep(0)

    async with asyncio.timeout(WAIT_SECONDS):
        await asyncio.gather(*sending)
        stream.close()
        await receiving
    assert received == messages


async def test_a_receiver_waits_for_the_next_message_and_loses_none_when_it_is_cancelled() -> None:
    stream = MessageQueue[str](waiting_max=1)
    cancelled = asyncio.create_task(stream.receive())
    await asyncio.sleep(0)
    cancelled.cancel()
    receiving = asyncio.create_task(stream.receive())
    await stream.send("1")

    async with asyncio.timeout(WAIT_SECONDS):
        assert await receiving == "1"


async def test_the_end_comes_after_the_messages_that_wait() -> None:
    stream = MessageQueue[str](waiting_max=2)
    await send_as(stream, "a", "1", "2")
    await stream.aclose()

    assert [message async for message in stream] == ["1", "2"]
    with pytest.raises(anyio.EndOfStream):
        await stream.receive()


async def test_the_end_wakes_both_ends() -> None:
    empty, full = MessageQueue[str](waiting_max=1), MessageQueue[str](waiting_max=1)
    await full.send("1")
    receiving, sending = asyncio.create_task(empty.receive()), asyncio.create_task(full.send("2"))
    await asyncio.sleep(0)
    async with empty, full:
        pass

    async with asyncio.timeout(WAIT_SECONDS):
        with pytest.raises(anyio.EndOfStream):
            await receiving
        with pytest.raises(anyio.ClosedResourceError):
            await sending
    with pytest.raises(anyio.ClosedResourceError):
        await empty.send("3")
