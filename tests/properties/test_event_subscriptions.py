"""Ids of subscriptions for any arguments, and any life of some subscriptions through the real store, against a model."""

import asyncio
import json
import os
import shutil
import tempfile
from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ringback.domain.event_subscriptions import TOMBSTONE_SECONDS
from ringback.domain.webhook import SUBSCRIBE_GRACE_SECONDS
from ringback.protocol.mcp_events.errors import EventError, EventErrorName
from ringback.protocol.mcp_events.grants import TtlPolicy
from ringback.protocol.mcp_events.subscription_key import canonical_arguments, subscription_id
from tests.support.builders import make_call
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.stores import open_test_store
from tests.support.subscriptions import HOOK, OTHER_SECRET, SECRET, SubscriptionStage
from tests.support.verifications import dispatch_all_due

T = TypeVar("T")

# -- ids --

numbers = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(allow_nan=False, allow_infinity=False)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
arguments = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), values, max_size=5)


def make_id(given_arguments: dict[str, Any], *, principal: str = "alice", url: str = HOOK) -> str:
    return subscription_id(principal, url, "call.finished", canonical_arguments(given_arguments))


def reversed_keys(value: Any) -> Any:
    if isinstance(value, dict):
        members: list[tuple[Any, Any]] = list(value.items())  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        return {key: reversed_keys(member) for key, member in reversed(members)}
    if isinstance(value, list):
        return [reversed_keys(member) for member in value]  # pyright: ignore[reportUnknownVariableType]
    return value


@given(arguments)
def test_an_id_depends_neither_on_the_order_of_keys_nor_on_how_the_request_was_written(
    given_arguments: dict[str, Any],
) -> None:
    expected = make_id(given_arguments)

    assert make_id(reversed_keys(given_arguments)) == expected
    assert make_id(json.loads(json.dumps(given_arguments))) == expected
    assert make_id(json.loads(json.dumps(given_arguments, ensure_ascii=False, indent=3))) == expected


@given(arguments, arguments)
def test_two_subscriptions_share_an_id_only_if_their_arguments_are_equal(
    one: dict[str, Any], two: dict[str, Any]
) -> None:
    assert (make_id(one) == make_id(two)) is (canonical_arguments(one) == canonical_arguments(two))


def test_the_parts_of_a_key_cannot_be_confused_with_each_other() -> None:
    ids = {
        make_id({}),
        make_id({}, principal='alice","x'),
        make_id({}, url=f'{HOOK}","call.finished'),
        make_id({}, url=f"{HOOK}?"),
        make_id({"a": 1}),
        make_id({"a": "1"}),
        make_id({"a": None}),
    }

    assert len(ids) == 7


def test_numbers_of_one_value_are_one_argument_and_an_id_is_the_same_in_every_version() -> None:
    assert make_id({"n": 1}) == make_id({"n": 1.0}) == make_id(json.loads('{"n": 1e0}'))
    assert make_id({"tool": "git_log", "ü": [1, {"b": 2, "a": "€"}]}) == "sub_8790a0409cd0f99992b4af1478a25a16"


# -- lives --

KEYS: Final[tuple[tuple[str, dict[str, str]], ...]] = (
    ("call.finished", {}),
    ("call.finished", {"tool": "git_log"}),
    ("call.finished", {"tool": "other"}),
)
POLICY: Final = TtlPolicy(default_seconds=3600.0, shortest_seconds=60.0, longest_seconds=86_400.0)
HEARING: Final = (0, 1)
"""The keys that match the calls of the test."""

keys = st.integers(0, len(KEYS) - 1)
lifetimes = st.sampled_from([1.0, 600.0, 3600.0, 1e9])


@dataclass(slots=True)
class Life:
    """What is known of one key that was ever subscribed. Instants are seconds of the clock."""

    expires_at: float
    forgotten_at: float | None = None
    """Set once it has ended."""


class SubscriptionsInStore(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.clock = FakeClock()
        self.folder = Path(
            tempfile.mkdtemp(dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
        )  # in memory, as other files of tests
        self.opening = open_test_store(self.folder, self.clock)
        self.engine = Engine(self.run(self.opening.__aenter__()), self.clock)
        self.stage = SubscriptionStage(self.engine, ttl_policy=POLICY)
        self.lives: dict[int, Life] = {}

    def teardown(self) -> None:
        self.run(self.opening.__aexit__(None, None, None))
        self.loop.close()
        shutil.rmtree(self.folder)

    def run(self, work: Awaitable[T]) -> T:
        """Without the signal handler of `Runner.run`, which takes as long as a read of the store."""
        return self.loop.get_loop().run_until_complete(work)

    @rule(key=keys, ttl=lifetimes, secret=st.sampled_from([SECRET, OTHER_SECRET]), restarts=st.booleans())
    def subscribe(self, key: int, ttl: float, secret: str, *, restarts: bool) -> None:
        name, given_arguments = KEYS[key]
        if restarts:
            self.stage = SubscriptionStage(self.engine, ttl_policy=POLICY)

        grant = self.run(self.stage.subscribe(name, arguments=given_arguments, ttl=ttl, secret=secret))

        assert grant.id == make_id(given_arguments)
        assert (grant.delivery_status is not None) is self.is_live(key)
        granted = min(max(ttl, POLICY.shortest_seconds), POLICY.longest_seconds)
        assert grant.refresh_before is not None
        assert (grant.refresh_before - self.clock.now()).total_seconds() == granted
        self.lives[key] = Life(expires_at=self.clock.monotonic() + granted)

    @rule(key=keys)
    def unsubscribe(self, key: int) -> None:
        name, given_arguments = KEYS[key]
        if self.is_remembered(key):
            self.run(self.stage.unsubscribe(name, arguments=given_arguments))
            if self.lives[key].forgotten_at is None:
                self.lives[key].forgotten_at = self.clock.monotonic() + TOMBSTONE_SECONDS
            return
        with pytest.raises(EventError) as refused:
            self.run(self.stage.unsubscribe(name, arguments=given_arguments))
        assert refused.value.name is EventErrorName.NOT_FOUND

    @rule(by_seconds=st.sampled_from([30, 600, 3600, 86_400, TOMBSTONE_SECONDS]))
    def pass_time(self, by_seconds: float) -> None:
        self.clock.advance(by_seconds)
        self.run(self.engine.run_recovery(self.engine.make_janitor()))
        for life in self.lives.values():
            if life.forgotten_at is None and life.expires_at <= self.clock.monotonic():
                life.forgotten_at = life.expires_at + TOMBSTONE_SECONDS

    @rule()
    def finish_a_call(self) -> None:
        self.clock.advance(SUBSCRIBE_GRACE_SECONDS)
        expected = sorted(make_id(KEYS[key][1]) for key in HEARING if self.is_live(key))
        self.run(self.engine.finish_call(make_call()))

        sent = self.run(dispatch_all_due(self.engine))

        assert sorted(each.headers["x-mcp-subscription-id"] for each in sent) == expected

    @invariant()
    def the_live_ones_are_counted(self) -> None:
        # A subscription that has expired is counted until the janitor's next round.
        ended = [life for life in self.lives.values() if life.forgotten_at is not None]
        assert self.run(self.stage.count_live()) == len(self.lives) - len(ended)

    def is_live(self, key: int) -> bool:
        life = self.lives.get(key)
        return life is not None and life.forgotten_at is None and life.expires_at > self.clock.monotonic()

    def is_remembered(self, key: int) -> bool:
        life = self.lives.get(key)
        return life is not None and (life.forgotten_at is None or self.clock.monotonic() < life.forgotten_at)


TestSubscriptionsInStore = SubscriptionsInStore.TestCase
TestSubscriptionsInStore.settings = settings(max_examples=max(10, settings().max_examples // 4), stateful_step_count=25)
