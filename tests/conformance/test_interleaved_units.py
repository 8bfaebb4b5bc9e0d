"""Units of two nodes that decide about the same thing at the same time.

Each test runs one unit to its end, and another one on the other node before the first one commits. On SQLite, where units run
one after the other, the same tests show what that order gives.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pytest

from ringback.domain.call import Call, CallStatus, Handle
from ringback.domain.call_outcome import completion_from_result
from ringback.domain.call_rows import CallFilter
from ringback.domain.circuit_breaker import CLOSED_BREAKER
from ringback.domain.cursor import LogPosition, encode_log_position
from ringback.domain.delivery import DeliveryState
from ringback.domain.delivery_rows import DeliveryFilter
from ringback.domain.errors import CallEnded, NotFound
from ringback.domain.event import Event
from ringback.domain.event_rows import EventFilter
from ringback.domain.ports import Transaction
from ringback.domain.retry import DAY
from ringback.domain.verification import Challenge
from ringback.domain.webhook import Webhook, WebhookState
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier.verification import accept_proof
from ringback.services.calls.adoption import AdoptTaskRequest
from ringback.services.calls.reports import CallReport
from ringback.services.webhooks.registrations import RegisteredWebhook, WebhookRegistration
from ringback.services.webhooks.shared_webhooks import EXPIRY_STEP
from ringback.services.webhooks.webhook_changes import WebhookChange
from tests.support.builders import make_webhook
from tests.support.clock import FakeClock
from tests.support.examples import ALICE
from tests.support.interleaving import CALLER, OTHER_CALLER, Node, Nodes

RESULT: Final = completion_from_result(b'{"content":[]}', is_error=False)
SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
URL: Final = "http://127.0.0.1:1/callback"
REPORT: Final = CallReport(key="key", upstream="git", tool="git_log")
REGISTRATION: Final = WebhookRegistration(url=URL)


async def report(node: Node, **over: Any) -> Call:
    return (await node.services.reports.record_report(CALLER, replace(REPORT, **over))).call


async def register(node: Node, **over: Any) -> Webhook:
    return (await node.services.registrations.register_webhook(CALLER, replace(REGISTRATION, **over))).webhook


async def list_webhooks(nodes: Nodes) -> list[Webhook]:
    return list(await nodes.first.services.webhooks.list_webhooks(CALLER, position=None, limit=100))


async def list_events(nodes: Nodes) -> list[Event]:
    return list(await nodes.first.store.read(lambda tx: tx.events.list_after(ALICE, 0, EventFilter(), limit=100_000)))


async def list_deliveries(nodes: Nodes, **over: Any) -> list[Any]:
    where = DeliveryFilter(**over)
    return list(
        await nodes.first.store.scan(ALICE, lambda tx: tx.deliveries.list_page(ALICE, where, position=None, limit=100))
    )


# -- what exists once ---------------------------------------------------------------------------------------------------------


async def test_one_idempotency_key_makes_one_call(nodes: Nodes) -> None:
    one, two = await nodes.interleave(report, report)

    assert one == two
    calls = await nodes.first.services.calls.list_calls(CALLER, CallFilter(), position=None, limit=10)
    assert [call.id for call in calls] == [one.id]


async def test_one_name_makes_one_webhook(nodes: Nodes) -> None:
    async def register_named(node: Node) -> RegisteredWebhook:
        return await node.services.registrations.register_named(CALLER, "agent", REGISTRATION)

    one, two = await nodes.interleave(register_named, register_named)

    assert (one.is_new, two.is_new) == (True, False)
    assert one.webhook.id == two.webhook.id


async def test_one_idempotency_key_makes_one_webhook(nodes: Nodes) -> None:
    async def register_once(node: Node) -> RegisteredWebhook:
        return await node.services.registrations.register_webhook(CALLER, REGISTRATION, idempotency_key="key")

    one, two = await nodes.interleave(register_once, register_once)

    assert (one.is_new, two.is_new) == (True, False)
    assert one.webhook.id == two.webhook.id


async def test_the_same_registration_of_a_model_makes_one_webhook(nodes: Nodes) -> None:
    async def register_once(node: Node) -> Webhook:
        return await node.services.registrations.register_once(CALLER, REGISTRATION)

    one, two = await nodes.interleave(register_once, register_once)

    assert one.id == two.id


async def test_calls_of_one_session_share_the_callback_that_the_first_of_them_registers(nodes: Nodes) -> None:
    callback = WebhookRegistration(url=URL, client_session_id="session", secret=SECRET)

    await nodes.interleave(
        lambda node: report(node, key="one", client_session_id="session", callback=callback),
        lambda node: report(node, key="two", client_session_id="session", callback=callback),
    )

    assert len(await list_webhooks(nodes)) == 1


async def report_in_session(node: Node, key: str) -> Call:
    callback = WebhookRegistration(url=URL, client_session_id="session", secret=SECRET)
    return await report(node, key=key, client_session_id="session", callback=callback)


async def open_expiring_webhook(nodes: Nodes, clock: FakeClock) -> tuple[Webhook, Callable[[Node], Awaitable[Any]]]:
    """A shared webhook that the next call of its session extends, and a unit that removes it as expired."""
    await report_in_session(nodes.first, "one")
    (webhook,) = await list_webhooks(nodes)
    assert webhook.expires_at is not None
    clock.advance((EXPIRY_STEP * 2).total_seconds())
    expires_at = webhook.expires_at

    def remove_expired(node: Node) -> Awaitable[Any]:
        return node.store.write(lambda tx: tx.webhooks.remove_expired(now=expires_at, limit=10))

    return webhook, remove_expired


async def test_of_two_calls_that_extend_a_shared_webhook_the_longer_one_decides(nodes: Nodes) -> None:
    callback = WebhookRegistration(url=URL, client_session_id="session", secret=SECRET)

    def report_for(node: Node, days: int) -> Awaitable[Call]:
        values = {"timeout_seconds": days * DAY, "client_session_id": "session", "callback": callback}
        return report(node, key=f"{days} days", **values)

    await report_for(nodes.first, 1)

    longer, _ = await nodes.interleave(lambda node: report_for(node, 30), lambda node: report_for(node, 10))

    (webhook,) = await list_webhooks(nodes)
    assert webhook.expires_at is not None
    assert webhook.expires_at > longer.deadline_at


async def test_a_webhook_whose_expiry_a_call_extends_is_not_removed(nodes: Nodes, clock: FakeClock) -> None:
    webhook, remove_expired = await open_expiring_webhook(nodes, clock)

    await nodes.interleave(lambda node: report_in_session(node, "two"), remove_expired)

    assert [each.id for each in await list_webhooks(nodes)] == [webhook.id]


async def test_a_call_whose_shared_webhook_expires_meanwhile_registers_another_one(
    nodes: Nodes, clock: FakeClock
) -> None:
    webhook, remove_expired = await open_expiring_webhook(nodes, clock)

    _, call = await nodes.interleave(remove_expired, lambda node: report_in_session(node, "two"))

    (another,) = await list_webhooks(nodes)
    assert another.id != webhook.id
    named = await nodes.first.store.read(lambda tx: tx.call_webhooks.select_calls(another.id, [call.id]))
    assert list(named) == [call.id]


@pytest.mark.parametrize("has_accounts", [False, True])
async def test_a_shared_task_is_adopted_by_the_principal_whose_unit_commits_first_and_each_account_has_its_own(
    nodes: Nodes, *, has_accounts: bool
) -> None:
    class Tasks:
        def list_shared_names(self, upstream: str, _server: object) -> list[str]:
            return [] if has_accounts else sorted({upstream, "other-name"})

        async def find_task(self, _upstream: str, task_id: str, **_: Any) -> Handle:
            return Handle(driver="task", data={"task_id": task_id})

    for node in (nodes.first, nodes.second):
        setattr(node.services.task_adoption, "_tasks", Tasks())  # noqa: B010 - no upstream is needed here
    request = AdoptTaskRequest(upstream="git", task_id="task-1")

    one, two = await nodes.interleave(
        lambda node: node.services.task_adoption.adopt_task(CALLER, request),
        lambda node: node.services.task_adoption.adopt_task(OTHER_CALLER, request),
    )
    again = await nodes.second.services.task_adoption.adopt_task(CALLER, request)

    if has_accounts:
        assert (two.call.principal, two.call.id == one.call.id) == (OTHER_CALLER.principal, False)
    else:
        assert isinstance(two, NotFound)
    assert again.call.id == one.call.id


# -- ends ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cancels_first", [False, True])
async def test_a_call_ends_once(nodes: Nodes, *, cancels_first: bool) -> None:
    call = await report(nodes.first)

    async def end(node: Node) -> Call:
        return await report(node, completion=RESULT)

    async def cancel(node: Node) -> Call:
        return await node.services.calls.cancel_immediately(CALLER, call.id)

    first, second = (cancel, end) if cancels_first else (end, cancel)
    _, refusal = await nodes.interleave(first, second)

    ended = await nodes.first.services.calls.get_call(CALLER, call.id)
    assert isinstance(refusal, CallEnded)
    assert ended.status is (CallStatus.CANCELLED if cancels_first else CallStatus.COMPLETED)
    assert [event.call_id for event in await list_events(nodes)] == [call.id]


async def test_a_webhook_registered_before_the_end_commits_finds_the_event_in_the_log(nodes: Nodes) -> None:
    call = await report(nodes.first)
    cursor = encode_log_position(LogPosition(0))

    _, webhook = await nodes.interleave(
        lambda node: report(node, completion=RESULT), lambda node: register(node, cursor=cursor)
    )

    assert [each.call_id for each in await list_deliveries(nodes, webhook_id=webhook.id)] == [call.id]


async def test_an_end_finds_the_webhook_whose_registration_has_not_committed(nodes: Nodes) -> None:
    call = await report(nodes.first)

    webhook, _ = await nodes.interleave(register, lambda node: report(node, completion=RESULT))

    assert [each.call_id for each in await list_deliveries(nodes, webhook_id=webhook.id)] == [call.id]


async def test_an_end_before_a_registration_without_a_cursor_is_in_the_log_alone(nodes: Nodes) -> None:
    await report(nodes.first)

    _, webhook = await nodes.interleave(lambda node: report(node, completion=RESULT), register)

    assert await list_deliveries(nodes, webhook_id=webhook.id) == []
    assert len(await list_events(nodes)) == 1


async def test_a_revoked_token_stays_revoked_when_the_call_ends_meanwhile(nodes: Nodes) -> None:
    call = await report(nodes.first)
    resumption = nodes.first.services.call_resumption
    old = await resumption.issue_token(CALLER, call.id)

    token, _ = await nodes.interleave(
        lambda node: node.services.call_resumption.issue_token(CALLER, call.id, revoke_previous=True),
        lambda node: report(node, completion=RESULT),
    )

    assert (await resumption.resume_call(CALLER, token)).call.status is CallStatus.COMPLETED
    with pytest.raises(NotFound):
        await resumption.resume_call(CALLER, old)


# -- webhooks -----------------------------------------------------------------------------------------------------------------


async def test_two_changes_of_one_webhook_are_both_kept(nodes: Nodes) -> None:
    webhook = await register(nodes.first)

    async def change(wanted: WebhookChange, node: Node) -> None:
        await node.services.webhooks.change_webhook(CALLER, webhook.id, wanted)

    await nodes.interleave(
        partial(change, WebhookChange(description="one")), partial(change, WebhookChange(include_result=True))
    )

    changed = await nodes.first.services.webhooks.get_webhook(CALLER, webhook.id)
    assert (changed.description, changed.include_result) == ("one", True)


async def test_two_rotations_of_one_secret_are_both_kept(nodes: Nodes) -> None:
    webhook = await register(nodes.first)

    async def rotate(node: Node) -> None:
        await node.services.webhooks.rotate_secret(CALLER, webhook.id, secret=None, overlap_seconds=60)

    await nodes.interleave(rotate, rotate)

    assert len((await nodes.first.services.webhooks.get_webhook(CALLER, webhook.id)).secrets) == 3


async def test_an_event_matches_a_webhook_either_before_or_after_its_removal(nodes: Nodes) -> None:
    await report(nodes.first)
    webhook = await register(nodes.first)

    await nodes.interleave(
        lambda node: node.services.webhooks.remove_webhook(CALLER, webhook.id),
        lambda node: report(node, completion=RESULT),
    )

    assert await list_deliveries(nodes) == []


@pytest.mark.parametrize("activates_first", [False, True])
async def test_no_delivery_stays_held_when_its_webhook_becomes_active_meanwhile(
    nodes: Nodes, *, activates_first: bool
) -> None:
    await report(nodes.first)
    pending = make_webhook(principal=ALICE, url=URL, state=WebhookState.PENDING_VERIFICATION)

    async def insert(tx: Transaction) -> None:
        await tx.webhooks.insert(pending)
        await tx.challenges.save(
            Challenge(webhook_id=pending.id, principal=ALICE, url=URL, origin="origin", due_at=tx.now())
        )

    async def prove(tx: Transaction) -> None:
        webhook = await tx.webhooks.get(pending.id)
        assert webhook is not None
        await accept_proof(tx, webhook, url=URL)

    async def activate(node: Node) -> None:
        await node.store.write(prove)

    async def end(node: Node) -> None:
        await report(node, completion=RESULT)

    await nodes.first.store.write(insert)
    if activates_first:
        await nodes.interleave(activate, end)
    else:
        await nodes.interleave(end, activate)

    assert [each.state for each in await list_deliveries(nodes)] == [DeliveryState.PENDING]


async def test_two_losses_of_one_webhook_keep_the_earlier_place(nodes: Nodes) -> None:
    webhook = await register(nodes.first)

    async def lose(seq: int, tx: Transaction) -> None:
        (latest,) = await tx.webhooks.get_many([webhook.id], lock=True)
        missed = seq if latest.missed_from is None else min(seq, latest.missed_from)
        await tx.webhooks.update(replace(latest, missed_from=missed), WebhookPart.MISSED)

    await nodes.interleave(
        lambda node: node.store.write(partial(lose, 3)), lambda node: node.store.write(partial(lose, 7))
    )

    assert (await nodes.first.services.webhooks.get_webhook(CALLER, webhook.id)).missed_from == 3


async def test_failures_of_one_origin_count_on_both_nodes(nodes: Nodes) -> None:
    async def fail(node: Node) -> None:
        async def count(tx: Transaction) -> None:
            found = await tx.origin_breakers.get_breakers(["origin"], lock=True)
            breaker = found.get("origin", CLOSED_BREAKER)
            await tx.origin_breakers.save_breaker("origin", replace(breaker, failures=breaker.failures + 1))

        await node.store.write(count)

    await nodes.interleave(fail, fail)

    found = await nodes.first.store.read(lambda tx: tx.origin_breakers.get_breakers(["origin"]))
    assert found["origin"].failures == 2
