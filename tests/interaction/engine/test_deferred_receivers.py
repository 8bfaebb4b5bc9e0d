"""Events reach very many webhooks in bounded steps: some at once, the others in the order of the log soon after."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import pytest

from ringback.domain.call_outcome import completion_from_result
from ringback.domain.event import ExternalEvent
from ringback.domain.ports import Transaction
from ringback.domain.webhook import DeliveryCondition, Webhook
from ringback.notifier import deferred_receivers
from ringback.notifier.call_ends import LeasedCompletion
from tests.support.builders import make_call, make_webhook
from tests.support.catch_ups import finish_catching_up, list_sent_seqs
from tests.support.clock import START
from tests.support.engine import Engine
from tests.support.examples import ALICE

NAME: Final = "order.paid"
WEBHOOKS: Final = 12


async def publish(engine: Engine, count: int, *, text: str = "") -> None:
    external = [ExternalEvent(name=NAME, id=None, data={"text": text}) for _ in range(count)]

    async def work(tx: Transaction) -> None:
        await engine.recorder.record_external_events(tx, ALICE, external)

    await engine.store.write(work)


async def register(engine: Engine) -> Sequence[Webhook]:
    webhooks = [make_webhook(events=frozenset({NAME})) for _ in range(WEBHOOKS)]
    await engine.insert_webhooks(*webhooks)
    return webhooks


async def list_received(engine: Engine, webhooks: Sequence[Webhook]) -> list[list[int | None]]:
    return [[each.seq for each in await list_sent_seqs(engine, webhook)] for webhook in webhooks]


@pytest.mark.parametrize(
    ("limit", "value"),
    [("AT_ONCE_MAX", 7), ("BYTES_AT_ONCE_MAX", 7_000)],
    ids=["deliveries", "bytes"],
)
async def test_the_unit_of_a_batch_has_a_bounded_number_of_deliveries_and_no_webhook_misses_one(
    still: Engine, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(deferred_receivers, limit, value)
    webhooks = await register(still)

    await publish(still, 3, text="x" * 900)
    at_once = await list_received(still, webhooks)
    await publish(still, 1)
    await finish_catching_up(still)

    assert (at_once.count([1, 2, 3]), at_once.count([])) == (2, WEBHOOKS - 2)
    assert await list_received(still, webhooks) == [[1, 2, 3, 4]] * WEBHOOKS


@pytest.mark.parametrize("is_waited_for", [False, True])
async def test_ends_of_calls_that_share_a_unit_are_bounded_except_for_the_webhooks_that_their_calls_name(
    still: Engine, monkeypatch: pytest.MonkeyPatch, *, is_waited_for: bool
) -> None:
    monkeypatch.setattr(deferred_receivers, "AT_ONCE_MAX", 3)
    waits_until = START + timedelta(seconds=60) if is_waited_for else None
    calls = [await still.lease_dispatched_call(make_call(attended_until=waits_until)) for _ in range(3)]
    many = [make_webhook() for _ in range(WEBHOOKS)]
    detached = make_webhook(when=DeliveryCondition.DETACHED)
    own = make_webhook(call_id=calls[2].id)
    await still.insert_webhooks(*many, detached, own)
    ends = [
        LeasedCompletion(
            call_id=each.id,
            principal=each.principal,
            lease_token=each.lease_token or "",
            completion=completion_from_result(b"{}", is_error=False),
            progress=None,
        )
        for each in calls
    ]

    await still.store.write(lambda tx: still.recorder.finish_leased_calls(tx, ends))
    at_once = await list_received(still, [*many, detached])
    (own_at_once,) = await list_received(still, [own])
    await finish_catching_up(still)

    assert at_once[:-1].count([]) == WEBHOOKS - 1
    assert (at_once[-1], own_at_once) == ([1, 2, 3] if is_waited_for else [], [3])
    assert await list_received(still, [*many, detached]) == [[1, 2, 3]] * (WEBHOOKS + 1)
    assert await list_received(still, [own]) == [[3]]


async def test_a_usual_batch_reaches_all_its_webhooks_at_once(still: Engine) -> None:
    webhooks = await register(still)

    await publish(still, 3)

    assert await list_received(still, webhooks) == [[1, 2, 3]] * WEBHOOKS
    assert await finish_catching_up(still) == 0


async def test_webhooks_take_turns_in_catching_up_although_each_new_batch_defers_the_first_of_them_again(
    still: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker continued with the oldest webhook, whose catch-up each batch began again, and the others got nothing."""
    monkeypatch.setattr(deferred_receivers, "AT_ONCE_MAX", 7)
    monkeypatch.setattr(deferred_receivers, "UNCOUNTED_MAX", 0)
    webhooks = await register(still)
    worker = still.make_catch_up_worker()

    for _ in range(WEBHOOKS):
        await publish(still, 3)
        assert await worker.run_once()

    assert [] not in await list_received(still, webhooks)
