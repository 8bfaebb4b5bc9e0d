"""`ordered` webhooks: one delivery at a time for each session, in the order of the log; and `rate_per_second`."""

from datetime import timedelta
from itertools import groupby
from typing import Any, Final

import httpx
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringback.domain.delivery import DeliveryState
from ringback.domain.retry import ORDERED_GIVE_UP_SECONDS, RetryProfile
from ringback.domain.webhook import Webhook
from ringback.notifier import leasing as claims
from ringback.storage.rows import delivery_queue
from tests.support.builders import make_call, make_verified_webhook, make_webhook
from tests.support.clock import FakeClock
from tests.support.engine import Engine, running_dispatcher
from tests.support.receivers_by_host import ReceiversByHost

AGENT = "agent.example"
EXAMPLES: Final = max(10, settings().max_examples // 2)
"""On each of the two stores."""
LATER_SECONDS = 2 * ORDERED_GIVE_UP_SECONDS


class FlakyReceiver:
    """Responds to events as scripted, and then with 204; knows what was delivered, and which requests overlapped."""

    def __init__(self, script: list[int]) -> None:
        self._script = script
        self.delivered: list[tuple[str, str]] = []
        self._inside: set[str] = set()

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        envelope = orjson.loads(request.content)
        if envelope.get("type") == "gap":
            return httpx.Response(204)
        data = envelope["data"]
        key = data["client_session_id"] or data["call_id"]
        assert key not in self._inside
        self._inside.add(key)
        status = self._script.pop(0) if self._script else 204
        if status == 204:
            self.delivered.append((key, data["call_id"]))
        self._inside.discard(key)
        return httpx.Response(status)


async def insert_ordered_webhook(engine: Engine, **over: Any) -> Webhook:
    webhook = make_verified_webhook(ordered=True, **over)
    await engine.insert_webhooks(webhook)
    return webhook


@pytest.mark.requirement("R27")
@settings(max_examples=EXAMPLES)
@given(
    sessions=st.lists(st.sampled_from(["a", "b", None]), min_size=1, max_size=8),
    script=st.lists(st.sampled_from([204, 204, 500, 503, 410]), max_size=12),
    pauses=st.lists(st.integers(0, 700), min_size=1, max_size=6),
)
async def test_within_a_session_deliveries_arrive_in_the_order_of_the_log_whatever_fails(
    still: Engine, fake_clock: FakeClock, sessions: list[str | None], script: list[int], pauses: list[int]
) -> None:
    webhook = await insert_ordered_webhook(still)
    receiver = FlakyReceiver(list(script))
    dispatcher = still.make_dispatcher(receiver)
    ended = [await still.finish_call(make_call(client_session_id=session)) for session in sessions]

    for pause in [*pauses, LATER_SECONDS, LATER_SECONDS]:
        while await dispatcher.run_once():
            pass
        fake_clock.advance(pause)
    await still.store.write(lambda tx: tx.webhooks.delete(webhook.id))

    place: dict[str, int] = {call.id: number for number, call in enumerate(ended)}
    by_session = sorted(receiver.delivered, key=lambda delivered: delivered[0])
    for _, arrived in groupby(by_session, key=lambda delivered: delivered[0]):
        places = [place[call_id] for _, call_id in arrived]
        assert places == sorted(places)


async def test_a_delivery_that_fails_holds_up_its_own_session_and_no_other(
    still: Engine, fake_clock: FakeClock
) -> None:
    await insert_ordered_webhook(still)
    board = ReceiversByHost()
    dispatcher = still.make_dispatcher(board)
    board.set_response(AGENT, 500)
    first = await still.finish_call(make_call(client_session_id="a"))
    await dispatcher.run_once()
    board.set_response(AGENT, 204)
    second = await still.finish_call(make_call(client_session_id="a"))
    other = await still.finish_call(make_call(client_session_id="b"))

    await dispatcher.run_once()
    assert [body["data"]["call_id"] for body in board.bodies()[1:]] == [other.id]

    fake_clock.advance(5)
    while await dispatcher.run_once():
        pass
    assert [body["data"]["call_id"] for body in board.bodies()[2:]] == [first.id, second.id]


async def test_calls_without_a_session_are_not_ordered(still: Engine) -> None:
    await insert_ordered_webhook(still)
    for _ in range(3):
        await still.finish_call(make_call(client_session_id=None))

    assert await still.make_dispatcher(ReceiversByHost()).run_once() == 3


@pytest.mark.parametrize("retries", RetryProfile)
async def test_a_delivery_that_fails_for_an_hour_no_longer_blocks_its_session(
    still: Engine, fake_clock: FakeClock, retries: RetryProfile
) -> None:
    await insert_ordered_webhook(still, retries=retries)
    await still.finish_call(make_call())
    (delivery,) = await still.read_deliveries()
    assert delivery.give_up_at - delivery.created_at == timedelta(seconds=ORDERED_GIVE_UP_SECONDS)
    board = ReceiversByHost(500)
    dispatcher = still.make_dispatcher(board)
    for _ in range(20):
        await dispatcher.run_once()
        fake_clock.advance(300)

    assert (await still.read_delivery(delivery)).state is DeliveryState.DEAD
    board.set_response(AGENT, 204)
    await still.finish_call(make_call())
    assert await dispatcher.run_once() == 1


async def test_a_session_goes_on_as_soon_as_its_delivery_has_arrived(engine: Engine) -> None:
    await insert_ordered_webhook(engine)
    board = ReceiversByHost()
    async with running_dispatcher(engine.make_dispatcher(board, poll_seconds=3600.0)):
        ended = [await engine.finish_call(make_call()) for _ in range(5)]
        await board.wait_for_posts(5)

    assert [body["data"]["call_id"] for body in board.bodies()] == [call.id for call in ended]
    assert board.in_flight_max[AGENT] == 1


# -- rate -------------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R27")
@pytest.mark.parametrize(("rate", "at_once"), [(3.0, 3), (0.5, 1), (1.0, 1)])
async def test_a_webhook_gets_at_most_its_rate_per_second(
    still: Engine, fake_clock: FakeClock, rate: float, at_once: int
) -> None:
    webhook = make_verified_webhook(rate_per_second=rate)
    await still.insert_webhooks(webhook)
    for _ in range(12):
        await still.finish_call(make_call())
    dispatcher = still.make_dispatcher(ReceiversByHost())

    assert [await dispatcher.run_once(), await dispatcher.run_once()] == [at_once, 0]
    fake_clock.advance(1 / rate - 0.01)
    assert await dispatcher.run_once() == 0
    fake_clock.advance(0.02)
    assert await dispatcher.run_once() == 1
    fake_clock.advance(1000)
    assert await dispatcher.run_once() == at_once, "what was not used is not saved up"


async def test_one_webhooks_rate_is_no_business_of_another_at_the_same_origin(still: Engine) -> None:
    await still.insert_webhooks(make_webhook(rate_per_second=0.01), make_verified_webhook())
    for _ in range(4):
        await still.finish_call(make_call())

    assert await still.make_dispatcher(ReceiversByHost()).run_once() == 1 + 4


async def test_the_entries_of_removed_webhooks_are_evicted(still: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery_queue, "ORDER_KEYS_SCANNED_MAX", 1)
    monkeypatch.setattr(claims, "PLACES_MAX", 2)
    receiver = FlakyReceiver([])
    dispatcher = still.make_dispatcher(receiver)
    for _ in range(5):
        webhook = await insert_ordered_webhook(still)
        for session in ("a", "b"):
            await still.finish_call(make_call(client_session_id=session))
        await dispatcher.run_once()
        await still.store.write(lambda tx, webhook=webhook: tx.webhooks.delete(webhook.id))

    remembered = dispatcher._leasing._order_key_cursors  # pyright: ignore[reportPrivateUsage] - it shows nowhere else
    assert len(remembered) == 2
