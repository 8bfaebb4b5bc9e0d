"""A webhook that catches up gets each event once, in the order of the log, whatever happens meanwhile."""

from contextlib import suppress
from typing import Final

import httpx
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringback.domain.delivery import OPEN_STATES
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ids import EventId
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook
from ringback.notifier.catch_up import LOCKED_REST_SECONDS
from ringback.notifier.requested_deliveries import RequestedDeliveries
from tests.support.builders import make_call, make_verified_webhook, make_webhook
from tests.support.catch_ups import (
    FEW,
    append,
    finish_catching_up,
    list_received_seqs,
    list_sent_seqs,
    parse_cursor,
    read_seq,
    start_catch_up,
)
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.examples import ALICE, BOB
from tests.support.stores import FailingStore, StoreWithLockedRows

EXAMPLES: Final = max(10, settings().max_examples // 2)
"""On each of the two stores."""


@pytest.mark.usefixtures("short_steps")
async def test_nothing_that_happens_meanwhile_overtakes_what_is_older(still: Engine) -> None:
    await append(still, 5)
    webhook = make_webhook()
    await start_catch_up(still, webhook)

    await still.finish_call(make_call())
    assert await list_received_seqs(still, webhook) == [1, 2, 3]
    await finish_catching_up(still)
    await still.finish_call(make_call())

    assert await list_received_seqs(still, webhook) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.requirement("R34")
@pytest.mark.usefixtures("short_steps")
async def test_rows_of_one_principal_that_stay_locked_delay_no_catch_up_of_another(
    still: Engine, fake_clock: FakeClock
) -> None:
    """Each of its steps took ten seconds, and the worker waited for another five as for an outage."""
    alices, bobs = make_webhook(), make_webhook(principal=BOB)
    for webhook in (alices, bobs):
        await append(still, 3 * FEW, principal=webhook.principal)
        await start_catch_up(still, webhook)
    still.store = StoreWithLockedRows(still.store, ALICE)
    worker = still.make_catch_up_worker()

    steps = 0
    while await worker.run_once():
        steps += 1

    assert await list_received_seqs(still, bobs) == list(range(1, 3 * FEW + 1))
    assert (steps, (await read_seq(still, alices)) is not None) == (3, True)
    fake_clock.advance(LOCKED_REST_SECONDS)
    assert await worker.run_once()


@pytest.mark.requirement("R27")
@pytest.mark.usefixtures("short_steps")
@settings(max_examples=EXAMPLES)
@given(
    past=st.integers(0, 12),
    after=st.integers(0, 12),
    moves=st.lists(st.sampled_from(["step", "step", "end a call", "dispatch", "crash", "refuse"]), max_size=20),
    answers=st.lists(st.sampled_from([204, 204, 500, 410]), max_size=12),
)
async def test_every_event_is_delivered_once_in_the_order_of_the_log_whatever_comes_between(
    still: Engine,
    still_unsteady: FailingStore,
    fake_clock: FakeClock,
    past: int,
    after: int,
    moves: list[str],
    answers: list[int],
) -> None:
    principal = Principal(f"alice-{still.ids.new_event_id()}")  # each example has a log of its own
    receiver = ScriptedReceiverWithResponses(list(answers))
    dispatcher, worker = still.make_dispatcher(receiver), still.make_catch_up_worker()
    await append(still, past, principal=principal, client_session_id="s")
    webhook = make_verified_webhook(principal=principal, ordered=True)
    await start_catch_up(still, webhook, after_seq=min(after, past))

    last, known = past, await list_received_seqs(still, webhook)
    for move in moves:
        match move:
            case "step":
                await worker.run_once()
            case "end a call":
                await still.finish_call(make_call(principal=principal, client_session_id="s"))
                last += 1
            case "dispatch":
                await dispatcher.run_once()
                fake_clock.advance(1)
            case "refuse":  # the disk is full
                still_unsteady.refusals = 1
                with suppress(StoreUnavailable):
                    await worker.run_once()
                still_unsteady.refusals = 0
            case _:  # all that is in memory is gone
                worker = still.make_catch_up_worker()
        await check_cursors(still, webhook)
        before, known = known, await list_received_seqs(still, webhook)
        assert known[: len(before)] == before
    await finish_catching_up(still)
    for _ in range(3):
        while await dispatcher.run_once():
            pass
        fake_clock.advance(700)

    assert await list_received_seqs(still, webhook) == list(range(min(after, past) + 1, last + 1))
    place_of_event = {delivery.event_id: delivery.seq or 0 for delivery in await list_sent_seqs(still, webhook)}
    places = [place_of_event[event_id] for event_id in receiver.seen]
    assert places == sorted(places)
    await still.store.write(lambda tx: tx.webhooks.delete(webhook.id))


class ScriptedReceiverWithResponses:
    """Answers as scripted, then with 204; knows the order in which events were first seen."""

    def __init__(self, script: list[int]) -> None:
        self._script = script
        self.seen: list[EventId] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        event_id = orjson.loads(request.content).get("eventId")
        if event_id is not None and event_id not in self.seen:
            self.seen.append(event_id)
        return httpx.Response(self._script.pop(0) if self._script else 204)


async def check_cursors(engine: Engine, webhook: Webhook) -> None:
    """Nothing at or before a cursor is born later than the body that names it; what is open now was open or later then."""
    deliveries = await list_sent_seqs(engine, webhook)
    for place, delivery in enumerate(deliveries):
        cursor = parse_cursor(delivery)
        assert cursor < (delivery.seq or 0)
        assert all((later.seq or 0) > cursor for later in deliveries[place:])
        assert all((each.seq or 0) > cursor for each in deliveries[:place] if each.state in OPEN_STATES)


@pytest.mark.usefixtures("short_steps")
async def test_a_test_sent_meanwhile_does_not_call_safe_what_is_still_to_come(still: Engine) -> None:
    await append(still, 9)
    webhook = make_webhook(tool="other")  # so that nothing is open, either
    await start_catch_up(still, webhook)

    sent = await still.store.write(lambda tx: RequestedDeliveries(ids=still.ids).insert_test(tx, webhook))

    assert parse_cursor(sent) == FEW
