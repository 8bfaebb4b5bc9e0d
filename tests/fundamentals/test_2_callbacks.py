"""Callbacks: a webhook gets a request when a call ends, so no client has to poll."""

import pytest
import standardwebhooks

from ringback.client import RingbackClient
from tests.support.application import SECRET, CallbackReceiver, RunningApplication
from tests.support.engine import wait_until
from tests.support.receivers import NO_CONTENT, respond_with, serving_receiver
from tests.support.report_upstream import ReportUpstream


@pytest.mark.requirement("R16")
@pytest.mark.requirement("R18")
@pytest.mark.requirement("R19")
async def test_a_webhook_gets_a_callback_when_a_call_ends(
    alice: RingbackClient, reports: ReportUpstream, receiver: CallbackReceiver
) -> None:
    """The callback carries the agent's own ids of its work and its session."""
    await alice.register_webhook(receiver.url, secret=SECRET)
    started = await alice.start_call(
        "reports", "build_report", {"topic": "tides"}, correlation_id="tides-of-today", client_session_id="session-1"
    )
    reports.finish.set()

    callback = await receiver.wait_for_callback("tides-of-today")

    assert (callback.name, callback.call_id, callback.outcome) == ("call.finished", started.call.id, "result")
    assert callback.client_session_id == "session-1"


@pytest.mark.requirement("R23")
async def test_a_callback_is_signed(alice: RingbackClient, reports: ReportUpstream) -> None:
    """Any Standard Webhooks library verifies it. This is the library of the specification's authors."""
    reports.finish.set()
    async with serving_receiver(respond_with(NO_CONTENT)) as receiver:
        webhook = await alice.register_webhook(receiver.url())
        await alice.start_call("reports", "build_report", {"topic": "tides"}, wait_seconds=60)
        await receiver.arrived.wait()

    (request,) = receiver.requests
    assert webhook.secret is not None
    standardwebhooks.Webhook(webhook.secret).verify(request.body, request.headers)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(webhook.secret).verify(request.body + b" ", request.headers)


async def test_a_callback_carries_no_text_of_the_tool(
    alice: RingbackClient, reports: ReportUpstream, receiver: CallbackReceiver
) -> None:
    """It names the call and how to get the result. A webhook with `include_result` gets the result too."""
    await alice.register_webhook(receiver.url, secret=SECRET)
    await alice.register_webhook(receiver.url, secret=SECRET, include_result=True)
    reports.finish.set()
    await alice.start_call("reports", "build_report", {"topic": "tides"}, correlation_id="tides")

    callbacks = [await receiver.wait_for_callback("tides"), await receiver.wait_for_callback("tides")]

    with_result = [callback for callback in callbacks if "result" in callback.data]
    assert len(with_result) == 1
    assert with_result[0].data["result"]["content"][0]["text"] == "All about tides."


async def test_a_call_can_carry_its_own_callback(
    alice: RingbackClient, reports: ReportUpstream, receiver: CallbackReceiver
) -> None:
    """Its webhook matches only this call."""
    reports.finish.set()

    started = await alice.start_call(
        "reports", "build_report", {"topic": "tides"}, correlation_id="tides",
        callback={"url": receiver.url, "secret": SECRET},
    )  # fmt: skip
    await alice.start_call("reports", "build_report", {"topic": "winds"}, wait_seconds=60)
    await receiver.wait_for_callback("tides")

    assert [callback.call_id for callback in receiver.callbacks] == [started.call.id]


async def test_a_webhook_for_one_call_gets_its_events_from_the_first(
    alice: RingbackClient, reports: ReportUpstream, receiver: CallbackReceiver
) -> None:
    """So a webhook can also be registered after the end of its call."""
    reports.finish.set()
    started = await alice.start_call(
        "reports", "build_report", {"topic": "tides"}, correlation_id="tides", wait_seconds=60
    )

    await alice.register_webhook(receiver.url, secret=SECRET, call_id=started.call.id)

    assert (await receiver.wait_for_callback("tides")).call_id == started.call.id


async def test_any_other_webhook_gets_events_from_its_registration_on(
    alice: RingbackClient, reports: ReportUpstream, receiver: CallbackReceiver
) -> None:
    reports.finish.set()
    arguments = {"topic": "tides"}
    await alice.start_call("reports", "build_report", arguments, correlation_id="before", wait_seconds=60)

    await alice.register_webhook(receiver.url, secret=SECRET)
    await alice.start_call("reports", "build_report", arguments, correlation_id="after")
    await receiver.wait_for_callback("after")

    assert [callback.correlation_id for callback in receiver.callbacks] == ["after"]


async def test_a_webhook_gets_the_events_that_it_selected(
    alice: RingbackClient, reports: ReportUpstream, receiver: CallbackReceiver
) -> None:
    """The default is the end of calls; this webhook selects progress."""
    await alice.register_webhook(receiver.url, secret=SECRET, events=["call.progress"])
    await alice.start_call("reports", "build_report", {"topic": "tides"}, correlation_id="tides")

    callback = await receiver.wait_for_callback("tides")

    assert callback.name == "call.progress"
    assert callback.data["progress"] == {"progress": 1, "total": 2, "message": "halfway there"}


async def test_a_webhook_gets_no_callback_for_another_principals_calls(
    ringback: RunningApplication, alice: RingbackClient, reports: ReportUpstream, receiver: CallbackReceiver
) -> None:
    bob = await ringback.create_agent_client("bob")
    await bob.register_webhook(receiver.url, secret=SECRET)
    reports.finish.set()

    await alice.start_call("reports", "build_report", {"topic": "tides"}, wait_seconds=60)
    await bob.start_call("reports", "build_report", {"topic": "winds"}, correlation_id="bobs")
    await receiver.wait_for_callback("bobs")

    assert [callback.correlation_id for callback in receiver.callbacks] == ["bobs"]


async def test_deliveries_show_what_was_sent_and_when(
    alice: RingbackClient, reports: ReportUpstream, receiver: CallbackReceiver
) -> None:
    await alice.register_webhook(receiver.url, secret=SECRET)
    reports.finish.set()
    started = await alice.start_call("reports", "build_report", {"topic": "tides"}, correlation_id="tides")
    await receiver.wait_for_callback("tides")

    async def is_written_down() -> bool:
        return [each.state async for each in alice.deliveries(call_id=started.call.id)] == ["delivered"]

    await wait_until(is_written_down)
    (delivery,) = [each async for each in alice.deliveries(call_id=started.call.id)]
    (attempt,) = (await alice.delivery(delivery.id)).attempts
    assert (attempt.number, attempt.status_code) == (1, 204)
