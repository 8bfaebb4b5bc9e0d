"""Resuming: a callback reaches one process, and any process of the agent can continue from it."""

import pytest

from ringback.client import NotFound, RingbackClient, Unauthenticated
from tests.support.application import SECRET, CallbackReceiver, RunningApplication
from tests.support.report_upstream import ReportUpstream


@pytest.fixture
async def token(alice: RingbackClient, reports: ReportUpstream, receiver: CallbackReceiver) -> str:
    """The resume token of Alice's callback. The receiving process passes on only this token."""
    reports.finish.set()
    await alice.register_webhook(receiver.url, secret=SECRET)
    await alice.start_call("reports", "build_report", {"topic": "tides"}, correlation_id="tides")
    callback = await receiver.wait_for_callback("tides")
    assert callback.resume_token is not None
    return callback.resume_token


@pytest.mark.requirement("R18")
@pytest.mark.requirement("R21")
async def test_a_resume_token_leads_to_the_call_and_its_result(ringback: RunningApplication, token: str) -> None:
    another_process = await ringback.create_agent_client("alice")

    resumed = await another_process.resume(token)

    assert (resumed.call.correlation_id, resumed.call.outcome) == ("tides", "result")
    assert resumed.result is not None
    assert resumed.result["content"][0]["text"] == "All about tides."


@pytest.mark.requirement("R24")
async def test_a_resume_token_needs_the_key(ringback: RunningApplication, token: str) -> None:
    """A token names a call but does not authenticate. A token from a log is useless without the key."""
    anonymous, bob = await ringback.client(), await ringback.create_agent_client("bob")

    with pytest.raises(Unauthenticated):
        await anonymous.resume(token)
    with pytest.raises(NotFound):
        await bob.resume(token)


@pytest.mark.requirement("R24")
async def test_each_resume_returns_a_new_token_positioned_after_the_returned_events(
    alice: RingbackClient, reports: ReportUpstream
) -> None:
    """The first token stands at the beginning. The next token does not return the same events again."""
    started = await alice.start_call("reports", "build_report", {"topic": "tides"})
    reports.finish.set()

    first = await alice.resume(started.resume_token, wait_seconds=60)
    second = await alice.resume(first.resume_token)

    assert [event.name for event in first.events][-1] == "call.finished"
    assert second.events == ()
    assert second.result == first.result


@pytest.mark.requirement("R20")
async def test_a_client_without_a_receiver_polls_the_same_events(
    alice: RingbackClient, reports: ReportUpstream
) -> None:
    """Polls, streams and callbacks share one log; a cursor is a position in it."""
    started = await alice.start_call("reports", "build_report", {"topic": "tides"})
    await reports.wait_until_begun()
    page = await alice.poll_events(call_id=started.call.id, wait_seconds=60)
    assert [event.name for event in page.events] == ["call.progress"]

    reports.finish.set()
    page = await alice.poll_events(cursor=page.cursor, wait_seconds=60)

    assert [(event.name, event.data["call_id"]) for event in page.events] == [("call.finished", started.call.id)]
