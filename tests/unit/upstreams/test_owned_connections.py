"""How many connections an upstream has for principals with credentials of their own, and when they are closed."""

import asyncio
import gc
import sys
import weakref
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, cast

import pytest

from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import SHARED_OWNER, CredentialsScope
from ringback.domain.upstreams import UpstreamInfo
from ringback.upstreams.connection import UpstreamConnection
from ringback.upstreams.connection_tasks import ConnectionTasks
from ringback.upstreams.errors import UpstreamUnreachable
from ringback.upstreams.owned_connections import IDLE_SECONDS, OwnedConnections
from tests.support.clock import ManualClock
from tests.support.examples import ALICE, BOB
from tests.support.limits import WAIT_SECONDS
from tests.support.upstreams import make_http_config

CAROL = Principal("carol")
CONFIG = replace(make_http_config("http://127.0.0.1:1/mcp"), credentials=CredentialsScope.PRINCIPAL)


class FakeConnection:
    """A connection that only knows its owner."""

    def __init__(self, owner: Principal) -> None:
        self.owner = owner

    def get_info(self) -> UpstreamInfo:
        return UpstreamInfo(name="stage", transport="http", state="failing", calls_in_flight=1)


class FakeTasks:
    """Records which connections are open."""

    def __init__(self) -> None:
        self.open: list[Principal] = []

    def start_connection(self, connection: FakeConnection, **_: Any) -> None:
        self.open.append(connection.owner)

    def drain_connection(self, connection: FakeConnection) -> None:
        self.open.remove(connection.owner)


class OwnedHarness:
    def __init__(self, connections_max: int = 2) -> None:
        self.clock = ManualClock()
        self.tasks = FakeTasks()
        self._connections_max = connections_max
        self.connections = self.make_connections(self.tasks)

    def make_connections(self, tasks: FakeTasks, replaced: OwnedConnections | None = None) -> OwnedConnections:
        return OwnedConnections(
            CONFIG,
            make_connection=lambda _config, owner, _faults: (
                cast("UpstreamConnection", FakeConnection(owner)),
                self._restore,
            ),
            tasks=cast("ConnectionTasks", tasks),
            clock=self.clock,
            connections_max=self._connections_max,
            replaced=replaced,
        )

    async def _restore(self) -> None:
        """Nothing is stored."""

    def use_once(self, owner: Principal) -> UpstreamConnection:
        with self.connections.use_connection(owner) as connection:
            return connection

    def let_idle_time_pass(self) -> None:
        self.clock.advance(IDLE_SECONDS)
        self.connections.close_idle_connections()


def test_each_principal_has_one_connection_which_its_uses_share() -> None:
    harness = OwnedHarness()
    first = harness.use_once(ALICE)

    with harness.connections.use_connection(ALICE) as one, harness.connections.use_connection(ALICE) as other:
        assert first is one is other
    assert harness.use_once(BOB) is not first
    assert harness.tasks.open == [ALICE, BOB]


def test_a_thousand_uses_of_one_principal_take_one_place() -> None:
    harness = OwnedHarness()
    harness.use_once(BOB)
    with ExitStack() as held:
        for _ in range(1000):
            held.enter_context(harness.connections.use_connection(ALICE))
        harness.use_once(BOB)

    assert harness.tasks.open == [BOB, ALICE]


def test_a_request_without_a_principal_opens_nothing() -> None:
    harness = OwnedHarness()

    with pytest.raises(UpstreamUnreachable, match="no principal"), harness.connections.use_connection(SHARED_OWNER):
        pass
    assert harness.tasks.open == []


def test_a_connection_is_closed_when_it_was_not_used_for_ten_minutes() -> None:
    harness = OwnedHarness()
    harness.use_once(ALICE)
    harness.clock.advance(IDLE_SECONDS - 1)
    harness.use_once(BOB)
    harness.clock.advance(1)
    harness.connections.close_idle_connections()

    assert harness.tasks.open == [BOB]


def test_a_connection_in_use_or_with_a_listener_is_not_closed_for_idleness() -> None:
    harness = OwnedHarness()
    with harness.connections.use_connection(ALICE), harness.connections.listen_on_connection(BOB):
        harness.let_idle_time_pass()
        assert harness.tasks.open == [ALICE, BOB]

    harness.let_idle_time_pass()
    assert harness.tasks.open == []


def test_the_least_recently_used_connection_makes_room_for_another_principal() -> None:
    harness = OwnedHarness()
    harness.use_once(ALICE)
    harness.use_once(BOB)
    harness.use_once(ALICE)
    harness.use_once(CAROL)

    assert harness.tasks.open == [ALICE, CAROL]


def test_a_connection_without_a_listener_makes_room_first() -> None:
    harness = OwnedHarness()
    with harness.connections.listen_on_connection(ALICE):
        harness.use_once(BOB)
        harness.use_once(CAROL)
        assert harness.tasks.open == [ALICE, CAROL]

        with harness.connections.use_connection(CAROL):
            harness.use_once(BOB)
            assert harness.tasks.open == [CAROL, BOB], "a listener waits for its owner's next use"
        harness.use_once(ALICE)
        harness.let_idle_time_pass()
        assert harness.tasks.open == [ALICE], "the listener still counts"


def test_no_connection_in_use_is_closed_for_another_principal() -> None:
    harness = OwnedHarness()
    with harness.connections.use_connection(ALICE), harness.connections.use_connection(BOB):
        with pytest.raises(UpstreamUnreachable, match="all 2 connections are in use"):
            harness.use_once(CAROL)

        assert harness.tasks.open == [ALICE, BOB]


async def test_a_principal_waits_for_a_place_until_a_connection_is_released() -> None:
    harness = OwnedHarness(connections_max=1)
    with harness.connections.use_connection(ALICE):
        await harness.connections.wait_for_place(ALICE, WAIT_SECONDS)  # it has one
        waiting = asyncio.create_task(harness.connections.wait_for_place(BOB, WAIT_SECONDS))
        await asyncio.sleep(0)
        assert not waiting.done()

    await waiting
    harness.use_once(BOB)
    assert harness.tasks.open == [BOB]


async def test_a_wait_for_a_place_ends_when_the_configuration_replaces_the_connections() -> None:
    harness = OwnedHarness(connections_max=1)
    with harness.connections.use_connection(ALICE):
        waiting = asyncio.create_task(harness.connections.wait_for_place(BOB, WAIT_SECONDS))
        await asyncio.sleep(0)
        harness.connections.drain_connections()

        await waiting


async def test_the_wait_for_a_place_ends_at_its_timeout() -> None:
    harness = OwnedHarness(connections_max=1)
    with harness.connections.use_connection(ALICE):
        await harness.connections.wait_for_place(BOB, 0.0)

        assert harness.tasks.open == [ALICE]


def test_a_principal_sees_the_state_of_its_own_connection_and_an_operator_that_of_all() -> None:
    harness = OwnedHarness()
    harness.use_once(ALICE)
    harness.use_once(BOB)

    own, other, total = (harness.connections.get_info(each) for each in (ALICE, CAROL, None))
    assert (own.state, own.connections, own.calls_in_flight) == ("failing", 1, 1)
    assert (other.state, other.connections, other.calls_in_flight) == ("idle", 0, 0)
    assert (total.state, total.connections, total.calls_in_flight) == ("failing", 2, 2)


def test_a_removed_upstream_closes_all_connections() -> None:
    harness = OwnedHarness()
    harness.use_once(ALICE)
    harness.use_once(BOB)
    harness.connections.drain_connections()

    assert harness.tasks.open == []
    assert harness.connections.find_connection(ALICE) is None


def count_function_calls(harness: OwnedHarness, owner: Principal) -> int:
    counted = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal counted
        counted += event in {"call", "c_call"}

    sys.setprofile(count)
    try:
        harness.use_once(owner)
    finally:
        sys.setprofile(None)
    return counted


def test_a_use_costs_the_same_with_a_thousand_owners_and_nothing_of_a_closed_one_is_left() -> None:
    few, many = OwnedHarness(connections_max=1000), OwnedHarness(connections_max=1000)
    few.use_once(ALICE)
    with ExitStack() as held:
        for number in range(999):
            held.enter_context(many.connections.use_connection(Principal(f"owner-{number}")))
        connection = weakref.ref(many.use_once(ALICE))
        assert count_function_calls(many, ALICE) == count_function_calls(few, ALICE)
        assert count_function_calls(many, BOB) <= count_function_calls(few, BOB) + 20, "one is closed for it"

    many.let_idle_time_pass()
    gc.collect()
    assert len(many.connections) == 0
    assert connection() is None


def test_listeners_of_a_replaced_configuration_listen_on_the_connections_of_the_new_one() -> None:
    old, new = OwnedHarness(), FakeTasks()
    with old.connections.listen_on_connection(ALICE), old.connections.listen_on_connection(BOB, opens=False):
        assert old.tasks.open == [ALICE]
        connections = old.make_connections(new, replaced=old.connections)
        connections.open_for_listeners()
        assert new.open == [ALICE, BOB]

    old.clock.advance(IDLE_SECONDS)
    connections.close_idle_connections()
    assert new.open == []
