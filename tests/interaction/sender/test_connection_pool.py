"""Which connections are used again, on both event loops: never one on which a byte came that nobody asked for."""

import asyncio
import os
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.delivery import AttemptCategory, AttemptResult
from ringback.notifier.http import connection_pool as http1_pool
from ringback.notifier.http.client import Http1Sender
from ringback.notifier.http.guard import TargetGuard
from tests.support.clock import FakeClock
from tests.support.limits import WAIT_SECONDS
from tests.support.receivers import (
    NO_CONTENT,
    AcceptedConnection,
    CertificateAuthority,
    Receiver,
    never_read,
    never_respond,
    respond_with,
    response,
    serving_receiver,
)
from tests.support.resolvers import LOOPBACK_POLICY, loopback_target

SMUGGLED = b"HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n"
MORE_THAN_BUFFERED = b"x" * 16_000_000
"""Than the two kernels' buffers hold: while nobody reads it, it is not written to its end."""
REFUSED = AttemptResult(category=AttemptCategory.CONNECTION_REFUSED)


@pytest.fixture(params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return "asyncio", {"use_uvloop": request.param}


class PushingReceiver:
    """Answers every request with the next of the given answers, and holds its connections out to the test."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = list(answers)
        self.connections: list[AcceptedConnection] = []
        self.asked: list[int] = []
        """For each request, the number of its connection."""
        self.closed: asyncio.Queue[int] = asyncio.Queue()
        """The connections that the sender closed."""

    async def __call__(self, connection: AcceptedConnection) -> None:
        number = len(self.connections)
        self.connections.append(connection)
        try:
            while await connection.request() is not None:
                self.asked.append(number)
                await connection.send(self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])
        finally:
            self.closed.put_nowait(number)

    def push_bytes(self, data: bytes) -> None:
        """Put bytes onto the last connection in this very instant: the event loop gets no turn to read them."""
        os.write(self.connections[-1].writer.get_extra_info("socket").fileno(), data)

    async def wait_until_closed(self, count: int = 1) -> list[int]:
        async with asyncio.timeout(WAIT_SECONDS):
            return [await self.closed.get() for _ in range(count)]


async def posts(sender: Http1Sender, receiver: Receiver, count: int) -> list[int | None]:
    target = loopback_target(receiver.url())
    return [(await sender.post(target, {}, b"{}", deadline_seconds=WAIT_SECONDS)).status_code for _ in range(count)]


async def test_one_connection_carries_one_post_after_the_other(http1_sender: Http1Sender) -> None:
    async with serving_receiver(respond_with(NO_CONTENT, response("200 OK", b"x"), response("500 Oops"))) as receiver:
        assert await posts(http1_sender, receiver, 5) == [204, 200, 500, 500, 500]

        assert receiver.connections == 1


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("behind", [SMUGGLED, b"\r\n", b"x"])
async def test_an_answer_with_something_behind_it_ends_its_connection(http1_sender: Http1Sender, behind: bytes) -> None:
    desk = PushingReceiver(NO_CONTENT + behind)
    async with serving_receiver(desk) as receiver:
        assert await posts(http1_sender, receiver, 3) == [204, 204, 204]

        assert desk.asked == [0, 1, 2]


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("surplus", [SMUGGLED, b"\r\n", b"H"])
async def test_bytes_received_before_a_post_are_never_its_response(http1_sender: Http1Sender, surplus: bytes) -> None:
    """The smuggled answer is in the machine when the next POST begins, and the event loop has not seen it yet."""
    desk = PushingReceiver(NO_CONTENT)
    async with serving_receiver(desk) as receiver:
        assert await posts(http1_sender, receiver, 1) == [204]
        desk.push_bytes(surplus)
        assert await posts(http1_sender, receiver, 2) == [204, 204]

        assert desk.asked == [0, 1, 1]


@pytest.mark.requirement("R27")
async def test_over_tls_nothing_smuggled_is_an_answer_either(
    http1_sender: Http1Sender, certificates: CertificateAuthority
) -> None:
    desk = PushingReceiver(NO_CONTENT + SMUGGLED)
    async with serving_receiver(desk, tls=certificates.server("127.0.0.1")) as receiver:
        assert await posts(http1_sender, receiver, 2) == [204, 204]
        desk.push_bytes(b"\x17")
        assert await posts(http1_sender, receiver, 1) == [204]

        assert desk.asked == [0, 1, 2]


async def test_a_byte_on_an_idle_connection_closes_it_at_once(
    http1_sender: Http1Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1_pool, "KEEPALIVE_SECONDS", 1000.0)
    desk = PushingReceiver(NO_CONTENT)
    async with serving_receiver(desk) as receiver:
        await posts(http1_sender, receiver, 1)
        desk.push_bytes(SMUGGLED)

        assert await desk.wait_until_closed() == [0]


async def test_the_receivers_end_of_an_idle_connection_is_seen(
    http1_sender: Http1Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1_pool, "KEEPALIVE_SECONDS", 1000.0)
    desk = PushingReceiver(NO_CONTENT)
    async with serving_receiver(desk) as receiver:
        await posts(http1_sender, receiver, 1)
        desk.connections[0].writer.write_eof()
        assert await desk.wait_until_closed() == [0]

        assert await posts(http1_sender, receiver, 1) == [204]
        assert desk.asked == [0, 1]


@pytest.mark.parametrize(
    ("answer", "connections"),
    [
        (response("200 OK", connection="close"), 3),
        (b"HTTP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n", 3),
        (b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 0\r\n\r\n", 1),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-trailer: 1\r\n\r\n", 1),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" + NO_CONTENT, 1),
    ],
)
async def test_a_receiver_says_whether_its_connection_stays(
    http1_sender: Http1Sender, answer: bytes, connections: int
) -> None:
    async with serving_receiver(respond_with(answer)) as receiver:
        await posts(http1_sender, receiver, 3)

        assert receiver.connections == connections


async def test_each_origin_has_its_own_connections(http1_sender: Http1Sender) -> None:
    desk = PushingReceiver(NO_CONTENT)
    async with serving_receiver(desk) as receiver:
        for host in ("127.0.0.1", "127.0.0.2", "127.0.0.1"):
            target = loopback_target(receiver.url(host="127.0.0.1"))
            object.__setattr__(target, "origin", f"http://{host}:{receiver.port}")
            await http1_sender.post(target, {}, b"{}")

    assert desk.asked == [0, 1, 0]


async def test_the_connection_that_was_used_last_is_used_next(http1_sender: Http1Sender) -> None:
    order: list[int] = []
    turns = [asyncio.Event() for _ in range(3)]

    async def in_turn(connection: AcceptedConnection) -> None:
        number = connection.receiver.connections - 1
        while await connection.request() is not None:
            order.append(number)
            await turns[number].wait()
            await connection.send(NO_CONTENT)

    async with serving_receiver(in_turn) as receiver:
        running: list[asyncio.Task[list[int | None]]] = []
        for number in range(3):
            running.append(asyncio.create_task(posts(http1_sender, receiver, 1)))
            await receiver.wait_for_requests(number + 1, within_seconds=WAIT_SECONDS)
        for number in (2, 0, 1):
            turns[number].set()
            await running[number]
        await posts(http1_sender, receiver, 1)

    assert order == [0, 1, 2, 1]


async def test_an_old_connection_is_not_used_again(http1_sender: Http1Sender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1_pool, "KEEPALIVE_SECONDS", 0.0)
    async with serving_receiver(respond_with(NO_CONTENT)) as receiver:
        assert await posts(http1_sender, receiver, 2) == [204, 204]

        assert receiver.connections == 2


async def test_connections_are_closed_when_they_are_old(
    http1_sender: Http1Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1_pool, "KEEPALIVE_SECONDS", 0.05)
    monkeypatch.setattr(http1_pool, "SWEEP_SECONDS", 0.01)
    desk = PushingReceiver(NO_CONTENT)
    async with serving_receiver(desk) as receiver:
        for _ in range(2):  # sweeping goes on, ends, and begins again when there is something to sweep
            await posts(http1_sender, receiver, 1)
            await desk.wait_until_closed()

        assert len(desk.connections) == 2


async def test_only_old_connections_are_removed_by_a_sweep(
    http1_sender: Http1Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1_pool, "KEEPALIVE_SECONDS", 1000.0)
    monkeypatch.setattr(http1_pool, "SWEEP_SECONDS", 0.01)
    desk = PushingReceiver(NO_CONTENT)
    async with serving_receiver(desk) as receiver:
        await asyncio.gather(posts(http1_sender, receiver, 1), posts(http1_sender, receiver, 1))
        older, _ = http1_sender._pool._idle[f"http://127.0.0.1:{receiver.port}"]  # pyright: ignore[reportPrivateUsage] - made old without waiting
        older.idle_since -= 2000.0
        (gone,) = await desk.wait_until_closed()

        assert await posts(http1_sender, receiver, 1) == [204]
        assert desk.asked[-1] == 1 - gone


@pytest.mark.parametrize("limit", ["IDLE_CONNECTIONS_PER_ORIGIN_MAX", "IDLE_CONNECTIONS_MAX"])
async def test_only_so_many_connections_are_kept(
    http1_sender: Http1Sender, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(http1_pool, limit, 2)
    everybody = asyncio.Barrier(5)
    closed: asyncio.Queue[None] = asyncio.Queue()

    async def together(connection: AcceptedConnection) -> None:
        await connection.request()
        await everybody.wait()
        await connection.send(NO_CONTENT)
        if await connection.request() is None:
            closed.put_nowait(None)

    async with serving_receiver(together) as receiver, asyncio.timeout(WAIT_SECONDS):
        await asyncio.gather(*(posts(http1_sender, receiver, 1) for _ in range(5)))
        for _ in range(3):
            await closed.get()
        assert closed.empty()
        await http1_sender.aclose()
        for _ in range(2):
            await closed.get()


async def test_a_connection_closed_by_its_receiver_frees_its_place(
    http1_sender: Http1Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1_pool, "IDLE_CONNECTIONS_MAX", 1)
    closing, staying = PushingReceiver(NO_CONTENT), PushingReceiver(NO_CONTENT)
    async with serving_receiver(closing) as first, serving_receiver(staying) as second:
        await posts(http1_sender, first, 1)
        closing.connections[0].writer.write_eof()
        await closing.wait_until_closed()
        await posts(http1_sender, second, 2)

        assert staying.asked == [0, 0]


# -- breaking ---------------------------------------------------------------------------------------------------------------


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
        assert await posts(http1_sender, receiver, 2) == [204, None]

        assert (receiver.connections, len(receiver.requests)) == (1, 2)


async def test_a_repeated_post_is_not_repeated_again(http1_sender: Http1Sender) -> None:
    async def answers_the_first(connection: AcceptedConnection) -> None:
        await connection.request()
        if connection.receiver.connections == 1:
            await connection.send(NO_CONTENT)
            await connection.request()

    async with serving_receiver(answers_the_first) as receiver:
        assert await posts(http1_sender, receiver, 2) == [204, None]

        assert (receiver.connections, len(receiver.requests)) == (2, 3)


async def test_a_kept_connection_that_says_nothing_is_not_tried_again(http1_sender: Http1Sender) -> None:
    async def falls_silent(connection: AcceptedConnection) -> None:
        await connection.request()
        await connection.send(NO_CONTENT)
        await never_respond(connection)

    async with serving_receiver(falls_silent) as receiver:
        await posts(http1_sender, receiver, 1)
        answer = await http1_sender.post(loopback_target(receiver.url()), {}, b"{}", deadline_seconds=0.1)

        assert (answer, receiver.connections) == (AttemptResult(category=AttemptCategory.TIMEOUT), 1)


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
        assert await posts(http1_sender, receiver, 2) == [204, None]

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
        task = asyncio.create_task(posts(http1_sender, receiver, 1))
        await receiver.wait_for_requests(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    await observing_close(request_only, cancel)


async def test_the_deadline_closes_the_connection(http1_sender: Http1Sender) -> None:
    async def expire(receiver: Receiver) -> None:
        answer = await http1_sender.post(loopback_target(receiver.url()), {}, b"{}", deadline_seconds=0.05)
        assert answer.category is AttemptCategory.TIMEOUT

    await observing_close(request_only, expire)


async def test_closing_the_sender_closes_idle_and_busy_connections(http1_sender: Http1Sender) -> None:
    desk = PushingReceiver(NO_CONTENT)
    async with (
        serving_receiver(desk) as friendly,
        serving_receiver(never_respond) as hung,
        serving_receiver(never_read) as full,
    ):
        await posts(http1_sender, friendly, 1)
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
        assert answers[0] == REFUSED
        assert answers[1] == REFUSED


async def test_a_closed_sender_repeats_nothing(http1_sender: Http1Sender) -> None:
    """A kept connection that breaks is a reason to dial anew, but not when it was we who broke it."""

    async def answers_once(connection: AcceptedConnection) -> None:
        await connection.request()
        await connection.send(NO_CONTENT)
        await never_respond(connection)

    async with serving_receiver(answers_once) as receiver:
        await posts(http1_sender, receiver, 1)
        running = asyncio.create_task(posts(http1_sender, receiver, 1))
        await receiver.wait_for_requests(2)
        await http1_sender.aclose()

        assert await running == [None]
        assert await posts(http1_sender, receiver, 1) == [None]
        assert (receiver.connections, len(receiver.requests)) == (1, 2)


@given(data=st.binary(max_size=300), framed=st.booleans(), cut=st.integers(1, 300))
async def test_any_bytes_of_a_receiver_are_at_most_one_response(
    *, client_tls: ssl.SSLContext, data: bytes, framed: bool, cut: int
) -> None:
    """Nothing is raised and nobody waits: the receiver hangs up after its bytes."""
    data = b"HTTP/1.1 200 OK\r\n" + data if framed else data

    async def behave(connection: AcceptedConnection) -> None:
        await connection.request()
        await connection.send(data[:cut])
        await connection.send(data[cut:])

    async with serving_receiver(behave) as receiver, asyncio.timeout(WAIT_SECONDS):
        sender = Http1Sender(TargetGuard(LOOPBACK_POLICY), clock=FakeClock(), ssl_context=client_tls)
        answer = await sender.post(loopback_target(receiver.url()), {}, b"{}", deadline_seconds=WAIT_SECONDS)
        await sender.aclose()

    assert answer == REFUSED or answer.status_code is not None
