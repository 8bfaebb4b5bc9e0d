"""Look-ups of the production resolver, over real UDP to a name server of the test's, on both event loops."""

import asyncio
import ssl
import threading
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from ipaddress import ip_address
from typing import Any

import pytest

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.principal import Principal
from ringback.notifier.http import caching_resolver as look_ups
from ringback.notifier.http import resolver as resolving
from ringback.notifier.http.client import Http1Sender
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.http.resolver import (
    FAILURE_TTL_SECONDS,
    NOT_FOUND_TTL_SECONDS,
    TTL_SECONDS_MAX,
    TTL_SECONDS_MIN,
    CAresResolver,
    Resolution,
)
from tests.support.clock import FakeClock
from tests.support.event_loops import both_event_loops
from tests.support.name_servers import HANG_BEHAVIOUR, Behaviour, NameServer, Records, name_server
from tests.support.receivers import NO_CONTENT, CertificateAuthority, respond_with, response, serving_receiver
from tests.support.resolvers import LOOPBACK_POLICY, loopback_target

anyio_backend = both_event_loops

MALLORY, ALICE = Principal("mallory"), Principal("alice")
LONG_DEADLINE_SECONDS = 60
"""Long enough for a test that asserts an order and no time, on a busy machine."""


@asynccontextmanager
async def make_sender(server: NameServer, tls: ssl.SSLContext) -> AsyncGenerator[tuple[Http1Sender, TargetGuard]]:
    guard = TargetGuard(LOOPBACK_POLICY, resolver=CAresResolver([server.address]))
    sender = Http1Sender(guard, clock=FakeClock(), ssl_context=tls)
    try:
        yield sender, guard
    finally:
        await sender.aclose()
        await guard.aclose()


def addresses(*texts: str) -> tuple[Any, ...]:
    return tuple(ip_address(text) for text in texts)


# -- answers ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scripted", "expected"),
    [
        (Records("127.0.0.1", ttl_seconds=7), Resolution(addresses=addresses("127.0.0.1"), ttl_seconds=7)),
        (
            Records("127.0.0.1", ttl_seconds=0),
            Resolution(addresses=addresses("127.0.0.1"), ttl_seconds=TTL_SECONDS_MIN),
        ),
        (
            Records("8.8.8.8", ttl_seconds=86400),
            Resolution(addresses=addresses("8.8.8.8"), ttl_seconds=TTL_SECONDS_MAX),
        ),
        (Records("::1", ttl_seconds=7), Resolution(addresses=addresses("::1"), ttl_seconds=7)),
        (
            Records("127.0.0.1", ttl_seconds=7, alias="other.test"),
            Resolution(addresses=addresses("127.0.0.1"), ttl_seconds=7),
        ),
        (
            Records("127.0.0.1", ttl_seconds=7, truncated=True),
            Resolution(addresses=addresses("127.0.0.1"), ttl_seconds=7),
        ),
        (Records(truncated=True), Resolution(ttl_seconds=NOT_FOUND_TTL_SECONDS)),
        (Records(), Resolution(ttl_seconds=NOT_FOUND_TTL_SECONDS)),
        (Behaviour.NO_SUCH_NAME, Resolution(ttl_seconds=NOT_FOUND_TTL_SECONDS)),
    ],
    ids=[
        "ttl",
        "ttl-0",
        "ttl-of-a-day",
        "ipv6",
        "alias",
        "truncated",
        "truncated-to-nothing",
        "no-address",
        "nxdomain",
    ],
)
async def test_an_answer_is_what_the_name_server_says_within_bounds(
    scripted: Records | Behaviour, expected: Resolution
) -> None:
    async with name_server({"asked.test": scripted}) as server, aclosing(CAresResolver([server.address])) as resolver:
        assert await resolver("asked.test") == expected


async def test_both_families_are_found() -> None:
    both = {"both.test": Records("127.0.0.1", "::1", "127.0.0.2")}
    async with name_server(both) as server, aclosing(CAresResolver([server.address])) as resolver:
        found = await resolver("both.test")

    assert set(found.addresses) == set(addresses("127.0.0.1", "::1", "127.0.0.2"))


@pytest.mark.parametrize("behaviour", [Behaviour.SERVER_FAILURE, Behaviour.REFUSED, Behaviour.MALFORMED])
async def test_a_name_server_failure_is_a_failed_lookup(behaviour: Behaviour) -> None:
    async with name_server({"asked.test": behaviour}) as server, aclosing(CAresResolver([server.address])) as resolver:
        found = await resolver("asked.test")

    assert (found.addresses, found.ttl_seconds) == ((), FAILURE_TTL_SECONDS)
    assert found.failure


async def test_an_unreachable_name_server_is_a_failed_lookup() -> None:
    async with name_server({}) as server:
        address = server.address
    async with aclosing(CAresResolver([address])) as resolver:
        assert (await resolver("asked.test")).failure


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST"])
async def test_localhost_is_known_without_a_name_server(host: str) -> None:
    async with name_server({}) as server, aclosing(CAresResolver([server.address])) as resolver:
        found = await resolver(host)

    assert found.addresses
    assert all(address.is_loopback for address in found.addresses)
    assert not server.queries


@pytest.mark.parametrize("host", ["receiver", "receiver.team"])
async def test_a_host_is_absolute_whatever_the_search_list_says(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALDOMAIN", "corp.test")  # c-ares takes it for the search list of resolv.conf
    trap = {f"{host}.corp.test": Records("127.0.0.1")}
    async with name_server(trap) as server, aclosing(CAresResolver([server.address])) as resolver:
        assert await resolver(host) == Resolution(ttl_seconds=NOT_FOUND_TTL_SECONDS)

    assert set(server.queries) == {host}


async def test_a_channel_with_a_full_cache_is_replaced_and_names_are_queried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resolving, "RECORDS_PER_CHANNEL", 4)
    async with (
        name_server({"hung.test": HANG_BEHAVIOUR}, others=Records("127.0.0.1")) as server,
        aclosing(CAresResolver([server.address])) as resolver,
    ):
        hung = asyncio.create_task(resolver("hung.test"))
        await server.wait_for_query("hung.test")
        for _ in range(3):
            await resolver("asked.test")
        assert server.queries["asked.test"] == 4  # A and AAAA, of two channels
        hung.cancel()
        await asyncio.gather(hung, return_exceptions=True)
        assert (await resolver("other.test")).addresses


# -- names that hang ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("hung", [64, 500])
async def test_names_that_hang_keep_no_healthy_name_of_another_principal_waiting(
    hung: int, certificates: CertificateAuthority, client_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the resolver that had 64 threads, every one of them was held."""
    monkeypatch.setattr(look_ups, "RESOLVE_SECONDS", LONG_DEADLINE_SECONDS)
    threads_before = threading.active_count()
    async with (
        name_server({"healthy.test": Records("127.0.0.1")}, others=HANG_BEHAVIOUR) as server,
        make_sender(server, client_tls) as (sender, _),
        serving_receiver(respond_with(NO_CONTENT), tls=certificates.server("healthy.test")) as receiver,
    ):
        bad = [
            asyncio.create_task(
                sender.post(loopback_target(f"https://hung-{number}.test/"), {}, b"{}", principal=MALLORY)
            )
            for number in range(hung)
        ]
        await server.wait_for_query(*(f"hung-{number}.test" for number in range(16)))
        good = loopback_target(receiver.url(host="healthy.test"))
        answer = await sender.post(good, {}, b"{}", principal=ALICE, deadline_seconds=LONG_DEADLINE_SECONDS)

        assert answer.category is AttemptCategory.DELIVERED
        assert threading.active_count() <= threads_before + 2  # c-ares' one, and the one that closes its channels
        for attempt in bad:
            attempt.cancel()
        await asyncio.gather(*bad, return_exceptions=True)


@pytest.mark.requirement("R27")
async def test_registering_names_that_hang_keeps_no_registration_of_another_principal_waiting(
    client_tls: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look_ups, "RESOLVE_SECONDS", LONG_DEADLINE_SECONDS)
    async with (
        name_server({"healthy.test": Records("127.0.0.1")}, others=HANG_BEHAVIOUR) as server,
        make_sender(server, client_tls) as (_, guard),
    ):
        checks = [
            asyncio.create_task(guard.check_url(f"https://hung-{number}.test/", MALLORY)) for number in range(200)
        ]
        await server.wait_for_query(*(f"hung-{number}.test" for number in range(16)))
        assert await guard.resolve_host("healthy.test", ALICE) == addresses("127.0.0.1")
        assert (await guard.check_url("https://healthy.test/", ALICE)).host == "healthy.test"
        for check in checks:
            check.cancel()
        await asyncio.gather(*checks, return_exceptions=True)


async def test_a_receiver_that_closes_after_each_response_costs_one_lookup(
    certificates: CertificateAuthority, client_tls: ssl.SSLContext
) -> None:
    async with (
        name_server({"closes.test": Records("127.0.0.1", ttl_seconds=60)}) as server,
        make_sender(server, client_tls) as (sender, guard),
        serving_receiver(
            respond_with(response("204 No Content", connection="close")), tls=certificates.server("closes.test")
        ) as receiver,
    ):
        target = loopback_target(receiver.url(host="closes.test"))
        answers = [await sender.post(target, {}, b"{}", principal=ALICE) for _ in range(10)]
        looked_up = await guard.resolve_host("closes.test", ALICE)

    assert [answer.category for answer in answers] == [AttemptCategory.DELIVERED] * 10
    assert looked_up == addresses("127.0.0.1")
    assert server.queries["closes.test"] == 2  # A and AAAA


@pytest.mark.requirement("R26")
async def test_an_answer_that_changes_to_a_blocked_address_is_judged_and_not_connected_to(
    client_tls: ssl.SSLContext, certificates: CertificateAuthority
) -> None:
    """DNS rebinding, by a real name server: whatever the cache holds is judged for each connection."""
    names = {"rebind.test": Records("127.0.0.1", ttl_seconds=0)}
    async with (
        name_server(names) as server,
        make_sender(server, client_tls) as (_, guard),
        serving_receiver(respond_with(NO_CONTENT), tls=certificates.server("rebind.test")) as receiver,
    ):
        target = loopback_target(receiver.url(host="rebind.test"))
        await guard.check_url(target.url, ALICE)
        server.names["rebind.test"] = Records("10.0.0.1", ttl_seconds=0)
        async with make_sender(server, client_tls) as (
            later,
            _,
        ):  # after the seconds that the first answer was good for
            answer = await later.post(target, {}, b"{}", principal=ALICE)

    assert answer.category is AttemptCategory.BLOCKED_ADDRESS
    assert receiver.connections == 0
