"""The service log has one line for each fact about a subscription, and no secret in it."""

import logging
from contextlib import suppress

import pytest

from ringback.protocol.mcp_events.errors import EventError
from tests.support.builders import make_webhook
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.subscriptions import HOOK, SECRET, SubscriptionStage
from tests.support.verifications import respond_with

LOGGER = "ringback.services.webhooks.subscription_log"


async def test_a_subscription_that_begins_is_refreshed_and_ends_has_a_line_for_each(
    still: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger=LOGGER)
    stage = SubscriptionStage(still)

    grant = await stage.subscribe(url=f"{HOOK}?token=hidden")
    await stage.subscribe(url=f"{HOOK}?token=hidden")
    await stage.unsubscribe(url=f"{HOOK}?token=hidden")

    lines = [each.__dict__ for each in caplog.records if each.name == LOGGER]
    assert [(each["msg"], each["levelno"]) for each in lines] == [
        ("subscription.created", logging.INFO),
        ("subscription.refreshed", logging.DEBUG),
        ("subscription.ended", logging.INFO),
    ]
    assert {each["subscription_id"] for each in lines} == {grant.id}
    assert {(each["principal"], each["event_name"]) for each in lines} == {("alice", "call.finished")}
    assert lines[0]["host"] == "agent.example"
    assert grant.refresh_before is not None
    assert lines[0]["expires_at"] == grant.refresh_before.isoformat()
    assert lines[2]["end"] == "unsubscribed"
    assert not any(SECRET in str(each) or "hidden" in str(each) for each in lines)


async def test_a_subscription_that_is_not_refreshed_has_one_line_at_its_end(
    still: Engine, fake_clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=LOGGER)
    grant = await SubscriptionStage(still).subscribe()
    assert grant.refresh_before is not None
    await still.insert_webhooks(make_webhook(expires_at=grant.refresh_before))

    fake_clock.advance((grant.refresh_before - fake_clock.now()).total_seconds() + 1)
    for _ in range(3):
        await still.make_janitor().run_once()

    ends = [each.__dict__ for each in caplog.records if each.msg == "subscription.ended"]
    facts = ("subscription_id", "principal", "end", "event_name")
    assert [tuple(end[name] for name in facts) for end in ends] == [(grant.id, "alice", "expired", None)]


async def test_a_refused_subscribe_has_a_line_with_its_reason(still: Engine, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger=LOGGER)

    with suppress(EventError):
        await SubscriptionStage(still, respond_with(404)).subscribe()

    (line,) = [each.__dict__ for each in caplog.records if each.name == LOGGER]
    facts = ("msg", "principal", "event_name", "host", "error", "reason")
    assert tuple(line[each] for each in facts) == (
        *("subscription.refused", "alice", "call.finished", "agent.example"),
        *("CallbackEndpointError", "http_4xx"),
    )
