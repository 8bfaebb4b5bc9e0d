"""Connections that break, are closed or get garbage, on both event loops: no request is sent twice."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.delivery import AttemptResult
from ringback.notifier.http.client import Http1Sender
from ringback.notifier.http.guard import TargetGuard
from tests.support.clock import FakeClock
from tests.support.event_loops import both_event_loops
from tests.support.limits import WAIT_SECONDS, let_deadline_pass
from tests.support.pushing_receiver import PushingReceiver, send_posts
from tests.support.receivers import (
    NO_CONTENT,
    AcceptedConnection,
    Receiver,
    never_read,
    never_respond,
    serving_receiver,
)
from tests.support.resolvers import LOOPBACK_POLICY, loopback_target

anyio_backend = both_event_loops

MORE_THAN_BUFFERED = b"x" * 16_000_000
"""More than the buffers of the two kernels hold: it is not written to its end while the receiver does not read."""
NO_STATUS = {AttemptCategory.CONNECTION_BROKEN, AttemptCategory.INVALID_RESPONSE, AttemptCategory.BODY_NOT_READ}


@pytest.mark.parametrize("beginning", [b"H", b"HTTP/1.1 103 Early Hints\r\n\r\n", b"HTTP/1.1 200 OK\r\n"])
async def test_a_kept_connection_that_breaks_within_an_answer_is_no_reason_to_repeat(
    http1_sender: Http1Sender, beginning: bytes
) -> None:
    async def breaks(connection: AcceptedConnection) -> None:
        await connection.request()
        await connection.send(NO_CONTENT)
        await connection.request()
        await connection.send(beginning)

    async with serving_receiver(breaks) as receiver:
        assert await send_posts(http1_sender, receiver, 2) == [204, None]

        assert (receiver.connections, len(receiver.requests)) == (1, 2)


async def test_a_repeated_post_is_not_repeated_again(http1_sender: Http1Sender) -> None:
    async def answers_the_first(connection: AcceptedConnection) -> None:
        await connection.request()
        if connection.receiver.connections == 1:
            await connection.send(NO_CONTENT)
            await connection.request()

    async with serving_receiver(answers_the_first) as receiver:
        assert await send_posts(http1_sender, receiver, 2) == [204, None]

        assert (receiver.connections, len(receiver.requests)) == (2, 3)


async def test_a_kept_connection_that_says_nothing_is_not_tried_again(http1_sender: Http1Sender) -> None:
    async def falls_silent(connection: AcceptedConnection) -> None:
        await connection.request()
        await connection.send(NO_CONTENT)
        await never_respond(connection)

    async with serving_receiver(falls_silent) as receiver:
        await send_posts(http1_sender, receiver, 1)
        answer = await http1_sender.post(loopback_target(receiver.url()), {}, b"{}", deadline_seconds=0.1)

        assert (answer.category, receiver.connections) == (AttemptCategory.RESPONSE_TIMEOUT, 1)


@pytest.mark.parametrize("garbage", [b"garbage\r\n", b"\r\n" + NO_CONTENT, b"{}", b"h"])
async def test_a_kept_connection_that_answers_with_garbage_is_no_reason_to_repeat(
    http1_sender: Http1Sender, garbage: bytes
) -> None:
    async def answers_garbage(connection: AcceptedConnection) -> None:
        await connection.request()
        await connection.send(NO_CONTENT)
        await connection.request()
        await connection.send(garbage)
        await connection.reader.read()

    async with serving_receiver(answers_garbage) as receiver:
        assert await send_posts(http1_sender, receiver, 2) == [204, None]

        assert (receiver.connections, len(receiver.requests)) == (1, 2)


async def observing_close(
    behaviour: Callable[[AcceptedConnection], Awaitable[Any]], act: Callable[[Receiver], Awaitable[Any]]
) -> None:
    """Returns when the receiver has seen the end of its connection; the act is what should bring it about."""
    seen = asyncio.Event()

    async def observe(connection: AcceptedConnection) -> None:
        await behaviour(connection)
        try:
            await connection.reader.read()
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            seen.set()

    async with serving_receiver(observe) as receiver, asyncio.timeout(WAIT_SECONDS):
        await act(receiver)
        await seen.wait()


async def request_only(connection: AcceptedConnection) -> None:
    await connection.request()


async def test_a_cancelled_post_closes_its_connection(http1_sender: Http1Sender) -> None:
    async def cancel(receiver: Receiver) -> None:
        task = asyncio.create_task(send_posts(http1_sender, receiver, 1))
        await receiver.wait_for_requests(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    await observing_close(request_only, cancel)


async def test_the_deadline_closes_the_connection(http1_sender: Http1Sender) -> None:
    async def expire(receiver: Receiver) -> None:
        answer = await let_deadline_pass(
            lambda seconds: http1_sender.post(loopback_target(receiver.url()), {}, b"{}", deadline_seconds=seconds),
            until=lambda _: bool(receiver.requests),
        )
        assert answer.category is AttemptCategory.RESPONSE_TIMEOUT

    await observing_close(request_only, expire)


async def test_closing_the_sender_closes_idle_and_busy_connections(http1_sender: Http1Sender) -> None:
    desk = PushingReceiver(NO_CONTENT)
    async with (
        serving_receiver(desk) as friendly,
        serving_receiver(never_respond) as hung,
        serving_receiver(never_read) as full,
    ):
        await send_posts(http1_sender, friendly, 1)
        busy = [
            asyncio.create_task(http1_sender.post(loopback_target(receiver.url()), {}, MORE_THAN_BUFFERED))
            for receiver in (hung, full)
        ]
        await hung.wait_for_requests(1)
        sweep = http1_sender._pool._sweep  # pyright: ignore[reportPrivateUsage] - a timer is seen nowhere else
        await http1_sender.aclose()

        assert sweep is not None
        assert sweep.cancelled()
        assert await desk.wait_until_closed() == [0]
        answers: Sequence[AttemptResult] = await asyncio.gather(*busy)
        assert answers[0].category in NO_STATUS
        assert answers[1].category in NO_STATUS


async def test_a_closed_sender_repeats_nothing(http1_sender: Http1Sender) -> None:
    """A kept connection that breaks is a reason to dial anew, but not when it was we who broke it."""

    async def answers_once(connection: AcceptedConnection) -> None:
        await connection.request()
        await connection.send(NO_CONTENT)
        await never_respond(connection)

    async with serving_receiver(answers_once) as receiver:
        await send_posts(http1_sender, receiver, 1)
        running = asyncio.create_task(send_posts(http1_sender, receiver, 1))
        await receiver.wait_for_requests(2)
        await http1_sender.aclose()

        assert await running == [None]
        assert await send_posts(http1_sender, receiver, 1) == [None]
        assert (receiver.connections, len(receiver.requests)) == (1, 2)


@given(data=st.binary(max_size=300), framed=st.booleans(), cut=st.integers(1, 300))
async def test_any_bytes_of_a_receiver_are_at_most_one_response(
    *, client_tls: ssl.SSLContext, data: bytes, framed: bool, cut: int
) -> None:
    """Nothing is raised and nothing waits: the receiver closes the connection after its bytes."""
    data = b"HTTP/1.1 200 OK\r\n" + data if framed else data

    async def behave(connection: AcceptedConnection) -> None:
        await connection.request()
        await connection.send(data[:cut])
        await connection.send(data[cut:])

    async with serving_receiver(behave) as receiver, asyncio.timeout(WAIT_SECONDS):
        sender = Http1Sender(TargetGuard(LOOPBACK_POLICY), clock=FakeClock(), ssl_context=client_tls)
        answer = await sender.post(loopback_target(receiver.url()), {}, b"{}", deadline_seconds=WAIT_SECONDS)
        await sender.aclose()

    assert answer.category in NO_STATUS or answer.status_code is not None
