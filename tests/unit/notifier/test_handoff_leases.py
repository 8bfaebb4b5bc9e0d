"""Leases of deliveries that are inserted as leased: one token for each transaction."""

from collections.abc import Callable
from datetime import timedelta
from typing import cast

import pytest

from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Transaction
from ringback.notifier.handoff_leases import HandoffLeases
from ringback.post_commit import DeliveryLease, UnusedLeases
from tests.support.builders import make_delivery
from tests.support.clock import START, FakeClock


class EndableTransaction:
    """The part of a transaction that leases use."""

    def __init__(self) -> None:
        self.commit_actions: list[Callable[[], None]] = []
        self.rollback_actions: list[Callable[[], None]] = []
        self.on_commit = self.commit_actions.append
        self.on_rollback = self.rollback_actions.append

    def now(self) -> object:
        return START

    def roll_back(self) -> None:
        for action in self.rollback_actions:
            action()


@pytest.fixture
def unused() -> UnusedLeases:
    return UnusedLeases(FakeClock())


@pytest.fixture
def leases(unused: UnusedLeases) -> HandoffLeases:
    return HandoffLeases(ids=IdGenerator(FakeClock()), unused=unused, owner="node", lease_seconds=30.0)


def grant(leases: HandoffLeases, tx: EndableTransaction) -> DeliveryLease:
    return leases.grant_lease(cast("Transaction", tx), lambda _: None)


def test_the_deliveries_of_one_transaction_have_one_token(leases: HandoffLeases) -> None:
    tx = EndableTransaction()
    first, second = grant(leases, tx), grant(leases, tx)
    assert first.token == second.token
    assert (first.owner, first.until) == ("node", START + timedelta(seconds=30))
    assert len(tx.rollback_actions) == 2, "one that notes the token as unused, and one that forgets the transaction"


def test_another_transaction_has_another_token(leases: HandoffLeases) -> None:
    one, other = EndableTransaction(), EndableTransaction()
    assert grant(leases, one).token != grant(leases, other).token


@pytest.mark.parametrize("actions", ["commit_actions", "rollback_actions"])
def test_a_transaction_is_forgotten_at_its_end(leases: HandoffLeases, actions: str) -> None:
    """Otherwise it would keep the bodies of its deliveries in memory."""
    tx = EndableTransaction()
    ended = grant(leases, tx)
    for action in getattr(tx, actions):
        action()
    assert grant(leases, tx).token != ended.token


def test_after_a_rollback_the_token_is_unused_with_the_deliveries_that_had_it(
    leases: HandoffLeases, unused: UnusedLeases
) -> None:
    tx = EndableTransaction()
    deliveries = [make_delivery(), make_delivery()]
    granted = [grant(leases, tx) for _ in deliveries]
    for lease, delivery in zip(granted, deliveries, strict=True):
        lease.hand_off(delivery)
    tx.roll_back()
    assert unused.list_tokens() == [granted[0].token]
    assert unused.list_ids() == [delivery.id for delivery in deliveries]
