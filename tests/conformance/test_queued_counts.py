"""Counts of queued calls by upstream: of one principal, and of all."""

from collections.abc import Sequence

import pytest

from ringback.domain.call import Call, CallPhase, CallStatus
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from tests.support.builders import make_call
from tests.support.examples import ALICE, BOB

OWNERS = (ALICE, BOB, Principal("carol"), None)


async def insert(store: Store, calls: Sequence[Call]) -> None:
    async def write(tx: Transaction) -> None:
        for call in calls:
            await tx.calls.insert(call)

    await store.write(write)


async def test_queued_calls_are_counted_for_each_upstream(store: Store) -> None:
    await insert(
        store,
        [
            *(make_call(principal=ALICE, upstream="git") for _ in range(3)),
            make_call(principal=BOB, upstream="git"),
            make_call(principal=BOB, upstream="time"),
            make_call(principal=ALICE, upstream="git", phase=CallPhase.RUNNING),
            make_call(principal=ALICE, upstream="git", phase=CallPhase.SCHEDULED),
            make_call(principal=ALICE, upstream="git", phase=CallPhase.ENDED, status=CallStatus.COMPLETED),
        ],
    )
    names = ["git", "time", "none"]

    async def count(tx: Transaction) -> Sequence[object]:
        return [
            await tx.usage.count_queued(),
            *[await tx.usage.count_own_queued(owner, names) for owner in (ALICE, BOB)],
            await tx.usage.count_own_queued(BOB, ["time"]),
            await tx.usage.count_own_queued(BOB, []),
        ]

    assert await store.read(count) == [
        {"git": 4, "time": 1},
        {"git": 3},
        {"git": 1, "time": 1},
        {"time": 1},
        {},
    ]


async def test_a_count_ends_at_its_limit_for_each_upstream(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringback.storage.rows.operations.TOTALS_COUNTED_MAX", 2)
    await insert(store, [make_call(upstream=upstream) for upstream in ("git", "time", "git", "git")])

    async def count(tx: Transaction) -> Sequence[object]:
        return [await tx.usage.count_queued(), await tx.usage.count_own_queued(ALICE, ["git", "time"])]

    assert await store.read(count) == [{"git": 2, "time": 1}, {"git": 2, "time": 1}]


async def test_the_queued_calls_of_a_principal_are_counted_at_every_upstream(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also at one that is not configured any more: its calls wait until it is again, or until their deadline."""
    others = [make_call(principal=BOB, upstream=upstream) for upstream in ("another", "git", "zeta")]
    phases = (CallPhase.QUEUED, CallPhase.RUNNING, CallPhase.SCHEDULED)
    removed = [make_call(principal=ALICE, upstream="removed", phase=phase) for phase in phases]
    await insert(store, [*others, *removed, *(make_call(principal=ALICE, upstream="git") for _ in range(2))])

    counts = [(await store.read(lambda tx, who=who: tx.open_work.count_open(who))).queued_calls for who in OWNERS]
    monkeypatch.setattr("ringback.storage.rows.insights.OPEN_COUNTED_MAX", 2)
    limited = await store.read(lambda tx: tx.open_work.count_open(ALICE))

    assert counts == [3, 3, 0, 6]
    assert limited.queued_calls == 2
