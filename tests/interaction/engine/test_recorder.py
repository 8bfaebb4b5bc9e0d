"""Writing down what happened: call, events and deliveries in one transaction, for exactly those who hear it."""

from collections.abc import Callable, Sequence
from typing import Any

import httpx
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.call import CANCELLED_COMPLETION, Call, CallOutcome, CallStatus, completion_from_result, failed_completion
from ringback.domain.cursor import decode_log_position
from ringback.domain.delivery import OPEN_STATES, Delivery, DeliveryState
from ringback.domain.delivery_rows import DeliveryFilter
from ringback.domain.event import Event
from ringback.domain.signals import DELIVERY_DUE_TOPIC, log_appended_topic, call_changed_topic
from ringback.domain.webhook import Webhook, WebhookState
from ringback.notifier.body import PayloadBuilder
from tests.support.builders import a_call, a_webhook
from tests.support.clock import FakeClock
from tests.support.engine import DONE, PUBLIC_URL, RESULT, WAIT_SECONDS, Engine
from tests.support.examples import ALICE, BOB


async def finish(engine: Engine, call: Call) -> Call | None:
    return await engine.store.write(lambda tx: engine.recorder.finish_call(tx, call, DONE, lease_token=None))


# -- one transaction --------------------------------------------------------------------------------------------------------


class OutOfPaper(PayloadBuilder):
    """Makes one body and fails at the next."""

    left = 1

    def make(self, event: Event, webhook: Webhook, **rest: Any) -> bytes:
        if not self.left:
            raise ZeroDivisionError
        self.left -= 1
        return super().build_event_body(event, webhook, **rest)


@pytest.mark.requirement("R35")
async def test_what_fails_in_the_middle_leaves_nothing_behind(still: Engine) -> None:
    call = a_call()
    await still.queue(call)
    await still.register(a_webhook(), a_webhook())
    recorder = still.recorder_with(OutOfPaper(tokens=still.tokens, public_url=PUBLIC_URL))

    with pytest.raises(ZeroDivisionError):
        await still.store.write(lambda tx: recorder.finish_call(tx, call, DONE, lease_token=None))

    assert await still.call(call) == call
    assert await still.result(call) is None
    assert await still.events() == []
    assert await still.deliveries() == []


async def test_the_end_the_result_the_event_and_its_deliveries_are_there_together(still: Engine) -> None:
    call, webhook = a_call(), a_webhook()
    await still.queue(call)
    await still.register(webhook)

    ended = await finish(still, call)

    assert ended == await still.call(call)
    assert await still.result(call) == RESULT
    (event,), (delivery,) = await still.events(), await still.deliveries()
    assert (delivery.event_id, delivery.seq, delivery.webhook_id) == (event.id, event.seq, webhook.id)


async def test_a_call_ends_once(still: Engine) -> None:
    call = a_call()
    await still.queue(call)
    await still.register(a_webhook())

    first = await finish(still, call)
    second = await still.store.write(lambda tx: still.recorder.finish_call(tx, call, CANCELLED_COMPLETION, lease_token=None))

    assert first is not None
    assert second is None
    assert (await still.call(call)).outcome is CallOutcome.RESULT
    assert len(await still.events()) == len(await still.deliveries()) == 1


async def test_an_end_under_a_lost_lease_is_not_written(still: Engine) -> None:
    call = await still.lease(a_call())

    ended = await still.store.write(lambda tx: still.recorder.finish_call(tx, call, DONE, lease_token="lease_of_another"))

    assert ended is None
    assert await still.call(call) == call
    assert await still.events() == []


async def test_whoever_waits_for_the_call_for_the_log_or_for_something_due_is_woken(still: Engine) -> None:
    call = a_call()
    await still.register(a_webhook())
    with (
        still.store.signals.listen(call_changed_topic(call.id)) as of_the_call,
        still.store.signals.listen(log_appended_topic(ALICE)) as of_the_log,
        still.store.signals.listen(DELIVERY_DUE_TOPIC) as of_the_dispatcher,
    ):
        await still.finish(call)

        assert await of_the_call.wait(WAIT_SECONDS)
        assert await of_the_log.wait(WAIT_SECONDS)
        assert await of_the_dispatcher.wait(WAIT_SECONDS)


# -- who hears it -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R25")
async def test_only_webhooks_of_the_calls_owner_that_hear_it_get_a_delivery(still: Engine) -> None:
    hears, of_the_tool = a_webhook(), a_webhook(tool="git_log")
    await still.register(hears, of_the_tool)
    await still.register(
        a_webhook(principal=BOB),
        a_webhook(tool="git_diff"),
        a_webhook(client_session_id="another"),
        a_webhook(state=WebhookState.DISABLED),
        a_webhook(expires_at=still.clock.now()),
    )

    await still.finish(a_call())

    assert {delivery.webhook_id for delivery in await still.deliveries()} == {hears.id, of_the_tool.id}
    assert await still.deliveries(BOB) == []


@pytest.mark.parametrize("state", [WebhookState.PENDING_VERIFICATION, WebhookState.SUSPENDED])
async def test_deliveries_for_a_webhook_that_may_not_be_called_yet_are_born_held(
    still: Engine, state: WebhookState
) -> None:
    await still.register(a_webhook(state=state))

    await still.finish(a_call())

    assert [delivery.state for delivery in await still.deliveries()] == [DeliveryState.HELD]


# -- the result in the body -------------------------------------------------------------------------------------------------


def result_of(delivery: Delivery) -> Any:
    return orjson.loads(delivery.body)["data"].get("result")


async def test_the_result_is_inlined_for_those_who_asked_for_it_only(still: Engine) -> None:
    asked, silent = a_webhook(include_result=True), a_webhook()
    await still.register(asked, silent)

    await still.finish(a_call())

    told = {delivery.webhook_id: result_of(delivery) for delivery in await still.deliveries()}
    assert told == {asked.id: orjson.loads(RESULT), silent.id: None}


async def test_a_result_that_does_not_fit_is_left_out_whole(still: Engine) -> None:
    large = b'{"content":[{"type":"text","text":"' + b"x" * 262_144 + b'"}]}'
    await still.register(a_webhook(include_result=True))

    await still.finish(a_call(), completion_from_result(large, is_error=False))

    (delivery,) = await still.deliveries()
    assert result_of(delivery) is None
    assert orjson.loads(delivery.body)["data"]["result_bytes"] == len(large)


async def test_a_call_without_a_result_has_nothing_to_inline(still: Engine) -> None:
    await still.register(a_webhook(include_result=True))

    await still.finish(a_call(), failed_completion(CallOutcome.UNKNOWN, "It was lost."))

    (delivery,) = await still.deliveries()
    assert result_of(delivery) is None


# -- the watermark ----------------------------------------------------------------------------------------------------------

steps = st.lists(st.sampled_from(["finish", "deliver", "fail", "refuse", "wait"]), min_size=1, max_size=25)


@pytest.mark.requirement("R27")
@given(steps=steps)
async def test_everything_at_or_before_a_bodys_cursor_was_delivered_or_abandoned_when_it_was_made(
    still: Engine, fake_clock: FakeClock, steps: Sequence[str]
) -> None:
    webhook = a_webhook(call_id=None, client_session_id=a_call().id)
    await still.register(webhook)
    answers = {"deliver": 204, "fail": 500, "refuse": 410}

    for step in steps:
        if step == "finish":
            before = await of_webhook(still, webhook)
            await still.finish(a_call(client_session_id=webhook.client_session_id))
            check_cursor((await of_webhook(still, webhook))[-1], before)
        elif step == "wait":
            fake_clock.advance(30)
        else:
            await still.dispatcher(answering(answers[step])).run_once()


async def of_webhook(engine: Engine, webhook: Webhook) -> list[Delivery]:
    """In the order of the log."""
    where = DeliveryFilter(webhook_id=webhook.id)
    found = await engine.store.read(lambda tx: tx.deliveries.list_page(ALICE, where, position=None, limit=1000))
    return sorted(found, key=place)


def place(delivery: Delivery) -> int:
    assert delivery.seq is not None
    return delivery.seq


def check_cursor(delivery: Delivery, before: Sequence[Delivery]) -> None:
    cursor = decode_log_position(orjson.loads(delivery.body)["cursor"]).seq
    open_before = [place(each) for each in before if each.state in OPEN_STATES]
    assert cursor < place(delivery)
    assert all(seq > cursor for seq in open_before)
    assert cursor == min([*open_before, place(delivery)]) - 1


def answering(status: int) -> Callable[[httpx.Request], httpx.Response]:
    return lambda _: httpx.Response(status)


async def test_an_end_is_told_with_the_status_that_it_has(still: Engine) -> None:
    await still.register(a_webhook())

    await still.finish(a_call(), CANCELLED_COMPLETION)

    (delivery,) = await still.deliveries()
    data = orjson.loads(delivery.body)["data"]
    assert (data["status"], data["outcome"]) == (CallStatus.CANCELLED, CallOutcome.CANCELLED)
