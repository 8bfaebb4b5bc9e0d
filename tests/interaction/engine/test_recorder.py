"""The recorder writes a call, its events and its deliveries in one transaction, with a delivery for each matching webhook."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import httpx
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringback.domain.call import Call, CallStatus
from ringback.domain.call_outcome import CANCELLED_COMPLETION, CallOutcome, completion_from_result, failed_completion
from ringback.domain.cursor import decode_log_position
from ringback.domain.delivery import OPEN_STATES, Delivery, DeliveryKind, DeliveryState
from ringback.domain.delivery_rows import DeliveryFilter
from ringback.domain.event import Event
from ringback.domain.signals import DELIVERY_DUE_TOPIC, call_changed_topic, log_appended_topic
from ringback.domain.webhook import Webhook, WebhookState
from ringback.notifier.payload import PayloadBuilder
from ringback.notifier.recorder import Recorder
from tests.support.builders import make_call, make_webhook
from tests.support.clock import FakeClock
from tests.support.engine import PUBLIC_URL, WAIT_SECONDS, Engine
from tests.support.examples import ALICE, BOB
from tests.support.stored_work import COMPLETED_RESULT, RESULT
from tests.support.whole_deliveries import list_whole_deliveries

EXAMPLES: Final = max(10, settings().max_examples // 2)
"""On each of the two stores."""


async def finish(engine: Engine, call: Call) -> Call | None:
    return await engine.store.write(
        lambda tx: engine.recorder.finish_call(tx, call, COMPLETED_RESULT, lease_token=None)
    )


# -- one transaction --------------------------------------------------------------------------------------------------------


class FailingPayloadBuilder(PayloadBuilder):
    """Makes one body and fails at the next."""

    builds_left = 1

    def build_event_body(self, event: Event, webhook: Webhook, **rest: Any) -> bytes:
        if not self.builds_left:
            raise ZeroDivisionError
        self.builds_left -= 1
        return super().build_event_body(event, webhook, **rest)


@pytest.mark.requirement("R35")
async def test_a_failure_within_recording_leaves_nothing_behind(still: Engine) -> None:
    call = make_call()
    await still.insert_calls(call)
    await still.insert_webhooks(make_webhook(), make_webhook())
    payloads = FailingPayloadBuilder(tokens=still.tokens, public_url=PUBLIC_URL)
    recorder = still.make_recorder(Recorder, payloads=payloads)

    with pytest.raises(ZeroDivisionError):
        await still.store.write(lambda tx: recorder.finish_call(tx, call, COMPLETED_RESULT, lease_token=None))

    assert await still.read_call(call) == call
    assert await still.read_result(call) is None
    assert await still.read_events() == []
    assert await still.read_deliveries() == []


async def test_the_end_the_result_the_event_and_its_deliveries_are_there_together(still: Engine) -> None:
    call, webhook = make_call(), make_webhook()
    await still.insert_calls(call)
    await still.insert_webhooks(webhook)

    ended = await finish(still, call)

    assert ended == await still.read_call(call)
    assert await still.read_result(call) == RESULT
    (event,), (delivery,) = await still.read_events(), await still.read_deliveries()
    assert (delivery.event_id, delivery.seq, delivery.webhook_id) == (event.id, event.seq, webhook.id)


async def test_a_call_ends_once(still: Engine) -> None:
    call = make_call()
    await still.insert_calls(call)
    await still.insert_webhooks(make_webhook())

    first = await finish(still, call)
    second = await still.store.write(
        lambda tx: still.recorder.finish_call(tx, call, CANCELLED_COMPLETION, lease_token=None)
    )

    assert first is not None
    assert second is None
    assert (await still.read_call(call)).outcome is CallOutcome.RESULT
    assert len(await still.read_events()) == len(await still.read_deliveries()) == 1


async def test_an_end_under_a_lost_lease_is_not_written(still: Engine) -> None:
    call = await still.lease_call(make_call())

    ended = await still.store.write(
        lambda tx: still.recorder.finish_call(tx, call, COMPLETED_RESULT, lease_token="lease_of_another")
    )

    assert ended is None
    assert await still.read_call(call) == call
    assert await still.read_events() == []


async def test_waiters_for_the_call_the_log_and_due_deliveries_are_notified(still: Engine) -> None:
    call = make_call()
    await still.insert_webhooks(make_webhook())
    with (
        still.store.signals.listen(call_changed_topic(call.id)) as of_the_call,
        still.store.signals.listen(log_appended_topic(ALICE)) as of_the_log,
        still.store.signals.listen(DELIVERY_DUE_TOPIC) as of_the_dispatcher,
    ):
        await still.finish_call(call)

        assert await of_the_call.wait(WAIT_SECONDS)
        assert await of_the_log.wait(WAIT_SECONDS)
        assert await of_the_dispatcher.wait(WAIT_SECONDS)


# -- matching webhooks -------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R25")
async def test_only_matching_webhooks_of_the_calls_owner_get_a_delivery(still: Engine) -> None:
    unfiltered, of_the_tool = make_webhook(), make_webhook(tool="git_log")
    await still.insert_webhooks(unfiltered, of_the_tool)
    await still.insert_webhooks(
        make_webhook(principal=BOB),
        make_webhook(tool="git_diff"),
        make_webhook(client_session_id="another"),
        make_webhook(state=WebhookState.DISABLED),
        make_webhook(expires_at=still.clock.now()),
    )

    await still.finish_call(make_call())

    assert {delivery.webhook_id for delivery in await still.read_deliveries()} == {unfiltered.id, of_the_tool.id}
    assert await still.read_deliveries(BOB) == []


@pytest.mark.parametrize("state", [WebhookState.PENDING_VERIFICATION, WebhookState.SUSPENDED])
async def test_deliveries_for_an_unverified_webhook_are_created_held(still: Engine, state: WebhookState) -> None:
    await still.insert_webhooks(make_webhook(state=state))

    await still.finish_call(make_call())

    assert [delivery.state for delivery in await still.read_deliveries()] == [DeliveryState.HELD]


# -- the result in the body -------------------------------------------------------------------------------------------------


def result_of(delivery: Delivery) -> Any:
    return orjson.loads(delivery.body)["data"].get("result")


async def test_the_result_is_inlined_only_for_webhooks_that_include_it(still: Engine) -> None:
    asked, silent = make_webhook(include_result=True), make_webhook()
    await still.insert_webhooks(asked, silent)

    await still.finish_call(make_call())

    results = {delivery.webhook_id: result_of(delivery) for delivery in await still.read_deliveries()}
    assert results == {asked.id: orjson.loads(RESULT), silent.id: None}


async def test_a_result_that_does_not_fit_is_left_out_whole(still: Engine) -> None:
    large = b'{"content":[{"type":"text","text":"' + b"x" * 262_144 + b'"}]}'
    await still.insert_webhooks(make_webhook(include_result=True))

    await still.finish_call(make_call(), completion_from_result(large, is_error=False))

    (delivery,) = await still.read_deliveries()
    assert result_of(delivery) is None
    assert orjson.loads(delivery.body)["data"]["result_bytes"] == len(large)


async def test_a_call_without_a_result_has_nothing_to_inline(still: Engine) -> None:
    await still.insert_webhooks(make_webhook(include_result=True))

    await still.finish_call(make_call(), failed_completion(CallOutcome.UNKNOWN, "It was lost."))

    (delivery,) = await still.read_deliveries()
    assert result_of(delivery) is None


# -- the watermark ----------------------------------------------------------------------------------------------------------

steps = st.lists(st.sampled_from(["finish", "deliver", "fail", "refuse", "wait"]), min_size=1, max_size=25)


@pytest.mark.requirement("R27")
@settings(max_examples=EXAMPLES)
@given(steps=steps)
async def test_everything_at_or_before_a_bodys_cursor_was_delivered_or_abandoned_when_it_was_made(
    still: Engine, fake_clock: FakeClock, steps: Sequence[str]
) -> None:
    webhook = make_webhook(call_id=None, client_session_id=make_call().id)
    await still.insert_webhooks(webhook)
    answers = {"deliver": 204, "fail": 500, "refuse": 410}

    for step in steps:
        if step == "finish":
            before = await list_deliveries(still, webhook)
            await still.finish_call(make_call(client_session_id=webhook.client_session_id))
            check_cursor((await list_deliveries(still, webhook))[-1], before)
        elif step == "wait":
            fake_clock.advance(30)
        else:
            await still.make_dispatcher(respond_with(answers[step])).run_once()


async def list_deliveries(engine: Engine, webhook: Webhook) -> list[Delivery]:
    """In the order of the log, without gaps, which hold no watermark back."""
    where = DeliveryFilter(webhook_id=webhook.id)
    found = await engine.store.read(lambda tx: list_whole_deliveries(tx, ALICE, where))
    return sorted((each for each in found if each.kind is not DeliveryKind.GAP), key=read_cursor_seq)


def read_cursor_seq(delivery: Delivery) -> int:
    assert delivery.seq is not None
    return delivery.seq


def check_cursor(delivery: Delivery, before: Sequence[Delivery]) -> None:
    cursor = decode_log_position(orjson.loads(delivery.body)["cursor"]).seq
    open_before = [read_cursor_seq(each) for each in before if each.state in OPEN_STATES]
    assert cursor < read_cursor_seq(delivery)
    assert all(seq > cursor for seq in open_before)
    assert cursor == min([*open_before, read_cursor_seq(delivery)]) - 1


def respond_with(status: int) -> Callable[[httpx.Request], httpx.Response]:
    return lambda _: httpx.Response(status)


async def test_a_completion_event_has_the_calls_status(still: Engine) -> None:
    await still.insert_webhooks(make_webhook())

    await still.finish_call(make_call(), CANCELLED_COMPLETION)

    (delivery,) = await still.read_deliveries()
    data = orjson.loads(delivery.body)["data"]
    assert (data["status"], data["outcome"]) == (CallStatus.CANCELLED, CallOutcome.CANCELLED)
