"""The guard, watched where sockets are opened: what is blocked never gets as far as one."""

import asyncio
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.client_address import Address
from ringback.domain.errors import InvalidCallbackUrl
from ringback.domain.principal import Principal
from ringback.notifier.http.caching_resolver import NO_PRINCIPAL
from ringback.notifier.http.client import Http1Sender
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.http.resolver import Resolution, Resolver
from ringback.notifier.http.target import Target, TargetPolicy, parse_target
from tests.support.clock import FakeClock
from tests.support.limits import WAIT_SECONDS
from tests.support.receivers import (
    NO_CONTENT,
    AcceptedConnection,
    never_respond,
    respond_in_turn,
    respond_with,
    serving_receiver,
)
from tests.support.resolvers import (
    LOOPBACK_POLICY,
    PUBLIC_POLICY,
    FakeResolver,
    SocketCounter,
    loopback_target,
    make_resolution,
)
from tests.support.ssrf import ALLOWED_URLS, BLOCKED_IPV4, BLOCKED_NAMES, BLOCKED_URLS

BLOCKED = AttemptCategory.BLOCKED_ADDRESS
NOT_FOUND = AttemptCategory.NAME_NOT_FOUND
TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@asynccontextmanager
async def counting_sender(resolver: Resolver, sockets: SocketCounter) -> AsyncGenerator[Http1Sender]:
    guard = TargetGuard(PUBLIC_POLICY, resolver=resolver)
    sender = Http1Sender(guard, clock=FakeClock(), ssl_context=TLS, open_socket=sockets)
    try:
        yield sender
    finally:
        await sender.aclose()


def https(host: str) -> Target:
    return parse_target(f"https://{host}/", PUBLIC_POLICY)


def test_there_are_as_many_vectors_as_were_promised() -> None:
    assert len(set(BLOCKED_URLS)) >= 250
    assert len(ALLOWED_URLS) >= 20


@pytest.mark.requirement("R26")
async def test_a_blocked_url_is_refused_when_registered_and_opens_no_socket_when_sent() -> None:
    sent = 0
    for url in BLOCKED_URLS:
        try:
            target = parse_target(url, PUBLIC_POLICY)
        except InvalidCallbackUrl:
            continue

        sockets = SocketCounter()
        async with counting_sender(FakeResolver(BLOCKED_NAMES), sockets) as sender:
            assert (await sender.post(target, {}, b"{}")).category in {BLOCKED, NOT_FOUND}, url
        assert sockets.addresses == [], url
        sent += 1

    assert 0 < sent < len(BLOCKED_URLS)


@pytest.mark.parametrize("url", ALLOWED_URLS)
@pytest.mark.requirement("R26")
async def test_a_good_url_is_connected_to(url: str) -> None:
    sockets = SocketCounter()
    target = parse_target(url, PUBLIC_POLICY)
    async with counting_sender(FakeResolver({target.host: ["93.184.216.34"]}), sockets) as sender:
        await sender.post(target, {}, b"{}")

    (address,) = sockets.addresses
    assert str(address) in {"93.184.216.34", target.host}


@given(st.lists(st.lists(st.sampled_from(["93.184.216.34", "2606:4700::1111", *BLOCKED_IPV4[:6], "::1"]), max_size=4)))
@pytest.mark.requirement("R26")
async def test_alternating_answers_never_reach_a_blocked_address(answers: list[list[str]]) -> None:
    """DNS rebinding. A name is asked anew for every connection."""
    sockets = SocketCounter()
    flipping = _ChangingResolver(answers)
    async with counting_sender(flipping, sockets) as sender:
        for number in range(len(answers)):
            await sender.post(https(f"flip-{number}.test"), {}, b"{}")

    assert {str(address) for address in sockets.addresses} <= {"93.184.216.34", "2606:4700::1111"}
    assert flipping.query_count == len(answers)


@pytest.mark.requirement("R26")
async def test_a_name_that_changes_with_every_lookup_never_reaches_a_blocked_address(*, deep: bool) -> None:
    answers = [["127.0.0.1"], ["93.184.216.34"], ["169.254.169.254", "93.184.216.34"], ["93.184.216.34"]]
    count = 10_000 if deep else 200
    sockets, flipping = SocketCounter(), _ChangingResolver(answers * (count // 4))
    async with counting_sender(flipping, sockets) as sender:
        for number in range(count):
            await sender.post(https(f"flip-{number}.test"), {}, b"{}")

    assert flipping.query_count == count
    assert [str(address) for address in sockets.addresses] == ["93.184.216.34"] * (count // 2)


async def test_an_answer_that_was_good_at_registration_is_judged_again_when_sent() -> None:
    sockets = SocketCounter()
    resolver = _ChangingResolver([["93.184.216.34"], ["127.0.0.1"]])
    guard = TargetGuard(PUBLIC_POLICY, resolver=resolver)
    target = await guard.check_url("https://rebind.test/")
    async with counting_sender(resolver, sockets) as sender:
        assert (await sender.post(target, {}, b"{}")).category is BLOCKED

    assert sockets.addresses == []


async def test_the_socket_is_guarded_even_if_the_resolver_were_not() -> None:
    """The last line: an address that slipped past every earlier check is judged when its socket is made."""
    sockets = SocketCounter()
    guard = _GuardWithoutChecks(
        PUBLIC_POLICY, resolver=FakeResolver({"slipped.test": ["10.0.0.1", "::1", "93.184.216.34"]})
    )
    sender = Http1Sender(guard, clock=FakeClock(), ssl_context=TLS, open_socket=sockets)
    assert (await sender.post(https("slipped.test"), {}, b"{}")).category is not AttemptCategory.DELIVERED
    await sender.aclose()

    assert {str(address) for address in sockets.addresses} == {"93.184.216.34"}


async def test_an_unknown_name_is_reported_as_such() -> None:
    sockets = SocketCounter()
    async with counting_sender(FakeResolver({}), sockets) as sender:
        answer = await sender.post(https("nowhere.test"), {}, b"{}")

    assert answer.category is NOT_FOUND
    assert sockets.addresses == []


async def test_a_name_that_hangs_ends_with_the_attempt_and_is_no_receiver_that_is_slow() -> None:
    async with counting_sender(_HangingResolver(), SocketCounter()) as sender:
        answer = await sender.post(https("hung.test"), {}, b"{}", deadline_seconds=0.1)

    assert answer.category is AttemptCategory.LOOK_UP_FAILED


async def test_an_undecodable_a_label_is_sent_as_it_stands() -> None:
    """No such name exists; the HTTP client must treat it as any other unknown name."""
    sockets = SocketCounter()
    async with counting_sender(FakeResolver({"xn--a.com": ["93.184.216.34"]}), sockets) as sender:
        assert (await sender.post(https("xn--a.com"), {}, b"{}")).category is AttemptCategory.CONNECTION_REFUSED

    assert len(sockets.addresses) == 1


async def test_the_next_address_is_tried_when_the_first_does_not_answer() -> None:
    async with serving_receiver(respond_with(NO_CONTENT)) as receiver:
        guard = TargetGuard(LOOPBACK_POLICY, resolver=FakeResolver({"two.test": ["127.0.0.9", "127.0.0.1"]}))
        sender = Http1Sender(guard, clock=FakeClock(), ssl_context=TLS)
        target = Target(
            url="",
            scheme="http",
            host="two.test",
            port=receiver.port,
            path="/",
            origin=f"http://two.test:{receiver.port}",
        )
        answer = await sender.post(target, {}, b"{}")
        await sender.aclose()

    assert answer.category is AttemptCategory.DELIVERED


# -- kept connections -------------------------------------------------------------------------------------------------------


async def test_a_connection_closed_by_the_receiver_costs_one_new_connection(
    http1_sender: Http1Sender,
) -> None:
    async with serving_receiver(respond_in_turn(NO_CONTENT)) as receiver:
        target = loopback_target(receiver.url())
        answers = [await http1_sender.post(target, {}, b"{}") for _ in range(2)]

    assert [answer.category for answer in answers] == [AttemptCategory.DELIVERED, AttemptCategory.DELIVERED]
    assert receiver.connections == 2


async def test_a_fresh_connection_that_is_closed_is_not_tried_again(http1_sender: Http1Sender) -> None:
    async with serving_receiver(never_respond) as receiver:
        task = asyncio.create_task(
            http1_sender.post(loopback_target(receiver.url()), {}, b"{}", deadline_seconds=WAIT_SECONDS)
        )
        await receiver.wait_for_requests(1)
    answer = await task

    assert answer.category is AttemptCategory.CONNECTION_BROKEN
    assert receiver.connections == 1


async def test_posts_do_not_wait_for_the_pool_of_the_http_client(http1_sender: Http1Sender) -> None:
    """Clients off the shelf stop at 100 connections or fewer; this receiver answers when all have come."""
    everybody = asyncio.Barrier(120)

    async def together(connection: AcceptedConnection) -> None:
        await connection.request()
        await everybody.wait()
        await connection.send(NO_CONTENT)

    async with serving_receiver(together) as receiver:
        target = loopback_target(receiver.url())
        answers = await asyncio.gather(*(http1_sender.post(target, {}, b"{}") for _ in range(120)))

    assert {answer.category for answer in answers} == {AttemptCategory.DELIVERED}


class _ChangingResolver:
    """Answers each look-up with the next of the given answers."""

    def __init__(self, answers: Sequence[Sequence[str]]) -> None:
        self._answers = answers
        self.query_count = 0

    async def __call__(self, _host: str, /) -> Resolution:
        answer = self._answers[self.query_count]
        self.query_count += 1
        return make_resolution(*answer)

    async def aclose(self) -> None: ...


class _HangingResolver:
    async def __call__(self, _host: str, /) -> Resolution:
        await asyncio.Event().wait()
        raise AssertionError

    async def aclose(self) -> None: ...


class _GuardWithoutChecks(TargetGuard):
    """A guard whose judging of names is broken, to show that the socket's own check stands alone."""

    def __init__(self, policy: TargetPolicy, *, resolver: Resolver) -> None:
        super().__init__(policy, resolver=resolver)
        self._resolver_without_checks = resolver

    async def resolve_host(
        self,
        host: str,
        principal: Principal = NO_PRINCIPAL,  # noqa: ARG002 - the guard's own names
        *,
        until: float | None = None,  # noqa: ARG002
    ) -> Sequence[Address]:
        return (await self._resolver_without_checks(host)).addresses
