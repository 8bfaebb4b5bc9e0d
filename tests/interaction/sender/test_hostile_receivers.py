"""Receivers that want to hold, fill, crash or fool the sender: each attempt ends in time, as exactly one category."""

import asyncio
import socket

import pytest

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.delivery import AttemptResult
from ringback.notifier.http.client import Http1Sender
from ringback.notifier.http.sender import Sender
from tests.support import receivers
from tests.support.limits import WAIT_SECONDS, let_deadline_pass
from tests.support.receivers import NO_CONTENT, Behaviour, respond_with, send_bytes, serving_receiver
from tests.support.resolvers import loopback_target

DEADLINE_SECONDS = 0.3
"""Of an attempt that cannot connect. All others are to end by what the receiver does, on a slow machine too."""
DRIP_SECONDS = 5.0
"""Of an attempt that ends with its deadline, but whose status is to come before it."""
LARGE_BODY = b"x" * 262_144

TIMEOUTS = {AttemptCategory.RESPONSE_TIMEOUT, AttemptCategory.TIMEOUT, AttemptCategory.BODY_NOT_READ}
"""The custom transport does not report the stage in which the attempt's own deadline passed."""
BROKEN = {AttemptCategory.CONNECTION_BROKEN, AttemptCategory.INVALID_RESPONSE, AttemptCategory.BODY_NOT_READ}
"""Which of them depends on the packets, and on the sender."""


async def attempt(
    sender: Sender, behaviour: Behaviour, body: bytes = b"{}", *, deadline_seconds: float = WAIT_SECONDS
) -> AttemptResult:
    async with serving_receiver(behaviour) as receiver, asyncio.timeout(2 * WAIT_SECONDS):
        return await sender.post(loopback_target(receiver.url()), {}, body, deadline_seconds=deadline_seconds)


@pytest.mark.parametrize(
    ("behaviour", "categories"),
    [
        (receivers.never_respond, TIMEOUTS),
        (receivers.never_read, TIMEOUTS),
        (receivers.send_headers_slowly, TIMEOUTS),
        (receivers.send_informational_endlessly, TIMEOUTS),
        (receivers.close_after_request, BROKEN),
        (receivers.close_at_once, BROKEN),
        (receivers.half_close, BROKEN),
        (receivers.reset_connection, BROKEN),
        (receivers.send_headers_endlessly, BROKEN),
        (receivers.send_status_line_endlessly, BROKEN),
    ],
)
@pytest.mark.requirement("R27")
async def test_a_receiver_that_gives_no_status_is_a_failure_in_time(
    sender: Sender, behaviour: Behaviour, categories: set[AttemptCategory]
) -> None:
    if categories is TIMEOUTS:
        answer = await let_deadline_pass(
            lambda seconds: attempt(sender, behaviour, LARGE_BODY, deadline_seconds=seconds),
            until=lambda late: late.category is not AttemptCategory.CONNECT_TIMEOUT,
        )
    else:
        answer = await attempt(sender, behaviour, LARGE_BODY)

    assert (answer.category in categories, answer.status_code) == (True, None)


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\r\n\r\n",
        b"\0" * 1000,
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"220 mail.example ESMTP\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 20\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 -20 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: ten\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx-long: " + b"a" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"<html>200 OK</html>",
        bytes(range(256)),
    ],
    ids=lambda garbage: repr(garbage[:40]),
)
async def test_garbage_is_no_status_of_the_receivers(sender: Sender, garbage: bytes) -> None:
    assert (await attempt(sender, send_bytes(garbage))).category in BROKEN


@pytest.mark.parametrize(
    ("behaviour", "excerpt"),
    [
        (receivers.send_body_slowly, "slow y"),
        (receivers.send_body_endlessly, "zzz"),
        (receivers.close_within_body, "part"),
        (receivers.respond_before_reading, "ok"),
        (send_bytes(b"HTTP/1.1 200 OK\r\n\r\nuntil the end"), "until the end"),
    ],
)
@pytest.mark.requirement("R27")
async def test_a_body_failure_after_a_status_keeps_the_status(
    sender: Sender, behaviour: Behaviour, excerpt: str
) -> None:
    deadline_seconds = DRIP_SECONDS if behaviour is receivers.send_body_slowly else WAIT_SECONDS
    answer = await attempt(sender, behaviour, LARGE_BODY, deadline_seconds=deadline_seconds)

    assert (answer.category, answer.status_code) == (AttemptCategory.DELIVERED, 200)
    assert (answer.excerpt or "").startswith(excerpt)


async def test_a_body_that_breaks_its_own_framing_is_one_answer_or_one_failure(sender: Sender) -> None:
    """Which of the two depends on whether the bad chunk comes in the same packet as the status; an exception never does."""
    broken = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nthis is no chunk\r\n"
    answer = await attempt(sender, send_bytes(broken))

    assert answer.category in BROKEN | {AttemptCategory.DELIVERED}


async def test_switching_protocols_is_no_delivery(sender: Sender) -> None:
    answer = await attempt(
        sender, send_bytes(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n")
    )

    assert answer.category is not AttemptCategory.DELIVERED


async def test_an_informational_answer_before_the_real_one_is_passed_over(sender: Sender) -> None:
    answer = await attempt(sender, send_bytes(b"HTTP/1.1 103 Early Hints\r\n\r\n" + NO_CONTENT))

    assert answer == AttemptResult(category=AttemptCategory.DELIVERED, status_code=204)


async def test_an_unrequested_second_response_is_not_used_for_the_next_request(http1_sender: Http1Sender) -> None:
    """Response splitting: the surplus answer must not be taken for the answer to the next POST on that connection."""
    smuggled = NO_CONTENT + b"HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n"
    async with serving_receiver(respond_with(smuggled)) as receiver:
        target = loopback_target(receiver.url())
        answers = [await http1_sender.post(target, {}, b"{}", deadline_seconds=WAIT_SECONDS) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [204, 204, 204]


async def test_a_port_that_accepts_nothing_times_out(sender: Sender) -> None:
    """A listener whose backlog is full drops the SYN, as a firewall does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT_SECONDS):
            target = loopback_target(f"http://127.0.0.1:{port}/")
            answer = await sender.post(target, {}, b"{}", deadline_seconds=DEADLINE_SECONDS)

    assert answer.category is (
        AttemptCategory.CONNECT_TIMEOUT if isinstance(sender, Http1Sender) else AttemptCategory.TIMEOUT
    )


async def test_a_hung_receiver_does_not_hold_the_others(sender: Sender) -> None:
    async with serving_receiver(receivers.never_respond) as hung, serving_receiver(respond_with(NO_CONTENT)) as healthy:
        waiting = [
            asyncio.create_task(sender.post(loopback_target(hung.url()), {}, b"{}", deadline_seconds=WAIT_SECONDS))
            for _ in range(20)
        ]
        await hung.wait_for_requests(20)
        answer = await sender.post(loopback_target(healthy.url()), {}, b"{}", deadline_seconds=WAIT_SECONDS)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    assert answer.category is AttemptCategory.DELIVERED


async def test_a_cancelled_attempt_leaves_the_sender_usable(http1_sender: Http1Sender) -> None:
    async with serving_receiver(receivers.never_respond) as hung, serving_receiver(respond_with(NO_CONTENT)) as healthy:
        task = asyncio.create_task(http1_sender.post(loopback_target(hung.url()), {}, b"{}"))
        await hung.wait_for_requests(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        answer = await http1_sender.post(loopback_target(healthy.url()), {}, b"{}")

    assert answer.category is AttemptCategory.DELIVERED
