"""Writing down what happened: the call or webhook, its events and their deliveries, in the caller's one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from ringback.domain import call as calls
from ringback.domain.call import Call, CallCompletion, CallPhase, Progress
from ringback.domain.call_rows import CallChange
from ringback.domain.delivery import DeliveryState
from ringback.domain.event import Event, EventName, build_call_event, build_upstream_event
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import DELIVERY_DUE_TOPIC, call_changed_topic, log_appended_topic
from ringback.domain.webhook import Webhook, matches_event
from ringback.domain.webhook_health import build_webhook_event
from ringback.notifier.catch_up import CatchUps
from ringback.notifier.fan_out import EventContext, FanOut
from ringback.notifier.log_positions import read_log_position
from ringback.notifier.payload import PayloadBuilder, build_gap_delivery
from ringback.post_commit import DeliveryHandoff


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """A call that is to end, as its row is now."""

    call: Call
    completion: CallCompletion
    lease_token: str | None
    """Whoever still holds it may write; None for what nobody holds."""


class ChangedCall(NamedTuple):
    """A call to be told of, as it has become; with the result that it has ended with."""

    call: Call
    result: bytes | None = None


class Recorder:
    """Whoever changes a call does it through here. Every method runs inside a transaction of its caller's."""

    def __init__(self, *, ids: IdGenerator, payloads: PayloadBuilder, result_retention_seconds: float) -> None:
        self.post_commit = DeliveryHandoff()
        """Where a dispatcher of this process takes deliveries right after the commit."""
        self._ids = ids
        self._fan_out = FanOut(ids=ids, payloads=payloads, post_commit=self.post_commit)
        self.catch_ups = CatchUps(self._fan_out)
        """How webhooks hear what was recorded before them."""
        self._result_retention_seconds = result_retention_seconds

    async def finish_call(
        self, tx: Transaction, call: Call, completion: CallCompletion, *, lease_token: str | None
    ) -> Call | None:
        """End the call and tell everybody. None when somebody else changed or took it first: then nothing is written."""
        (finished,) = await self.finish_calls(
            tx, [CompletionRequest(call=call, completion=completion, lease_token=lease_token)]
        )
        return finished

    async def finish_calls(self, tx: Transaction, requests: Sequence[CompletionRequest]) -> Sequence[Call | None]:
        """As `finish`, for each of them in their order.

        The rows of calls are locked before the heads of logs, and those in the order of their principals, here as everywhere.
        """
        finished = [await self._update_finished_call(tx, request) for request in requests]
        changed_calls = [
            ChangedCall(call, end.completion.result)
            for call, end in zip(finished, requests, strict=True)
            if call is not None
        ]
        await tx.calls.put_results({each.call.id: each.result for each in changed_calls if each.result is not None})
        for _, principal_calls in groupby(sorted(changed_calls, key=_principal_key), key=_principal_key):
            await self._append_call_events(tx, EventName.CALL_FINISHED, list(principal_calls))
        return finished

    async def record_input_requests(
        self, tx: Transaction, call: Call, updated: Call, *, lease_token: str | None
    ) -> bool:
        """Write a call whose questions have changed, and tell everybody if there are new ones. False as with `finish`."""
        change = CallChange.PARKED if updated.phase is CallPhase.PARKED is not call.phase else CallChange.INPUTS
        if not await tx.calls.update(updated, change, expected=call.status, lease_token=lease_token):
            return False
        if updated.input_round != call.input_round:
            await self._append_call_events(tx, EventName.CALL_INPUT_REQUIRED, [ChangedCall(updated)])
        tx.notify(call_changed_topic(call.id))
        return True

    async def record_progress(self, tx: Transaction, call: Call, progress: Progress, *, lease_token: str) -> bool:
        """Store the last progress and tell whoever listens to it. False when the lease is lost."""
        # The runner knows a call as it was at its dispatch; its tokens may have been revoked since.
        latest = await tx.calls.get(call.id)
        if latest is None or latest.is_final:
            return False
        updated = replace(latest, progress=progress, updated_at=tx.now())
        if not await tx.calls.update(updated, CallChange.PROGRESS, expected=latest.status, lease_token=lease_token):
            return False
        await self._append_call_events(tx, EventName.CALL_PROGRESS, [ChangedCall(updated)])
        return True

    async def record_reported_progress(self, tx: Transaction, call: Call) -> None:
        """Store the progress of a call that nobody here drives, and tell whoever listens to it. The caller holds its row."""
        await tx.calls.update(call, CallChange.PROGRESS, expected=call.status, lease_token=None)
        await self._append_call_events(tx, EventName.CALL_PROGRESS, [ChangedCall(call)])

    async def enqueue_gap(self, tx: Transaction, webhook: Webhook) -> None:
        """Tell a webhook that was registered with a place in a lost log that it hears from now on, and from where to poll."""
        oldest = await read_log_position(
            tx, webhook.principal, await tx.event_log.get_retention_floor(webhook.principal)
        )
        gap = build_gap_delivery(webhook, position=oldest, delivery_id=self._ids.new_delivery_id(), now=tx.now())
        await tx.deliveries.insert(
            [replace(gap, state=DeliveryState.HELD if webhook.holds_deliveries() else gap.state)]
        )
        tx.notify(DELIVERY_DUE_TOPIC)

    async def record_webhook_event(self, tx: Transaction, name: EventName, webhook: Webhook) -> None:
        """Tell the webhook's owner what has become of it, through the log and every other webhook that wants to know."""
        seq = await tx.events.reserve_seqs(webhook.principal, 1)
        await self._append_event(
            tx, build_webhook_event(webhook, name, event_id=self._ids.new_event_id(), seq=seq, now=tx.now())
        )

    async def record_upstream_change(
        self, tx: Transaction, principal: Principal, upstream: str, *, change: str, uri: str | None
    ) -> None:
        """Tell the principal that a list or a resource of the upstream has changed."""
        seq = await tx.events.reserve_seqs(principal, 1)
        event = build_upstream_event(
            principal, upstream, change=change, uri=uri, event_id=self._ids.new_event_id(), seq=seq, now=tx.now()
        )
        await self._append_event(tx, event)

    async def _update_finished_call(self, tx: Transaction, request: CompletionRequest) -> Call | None:
        retention_seconds = self._result_retention_seconds
        finished = calls.apply_completion(
            request.call, request.completion, now=tx.now(), result_retention_seconds=retention_seconds
        )
        was_updated = await tx.calls.update(
            finished, CallChange.ENDED, expected=request.call.status, lease_token=request.lease_token
        )
        return finished if was_updated else None

    async def _append_call_events(self, tx: Transaction, name: EventName, changed_calls: Sequence[ChangedCall]) -> None:
        """What has become of these calls of one principal, in the order of the log."""
        principal, now = changed_calls[0].call.principal, tx.now()
        first = await tx.events.reserve_seqs(principal, len(changed_calls))
        contexts = [
            EventContext(
                build_call_event(name, each.call, event_id=self._ids.new_event_id(), seq=seq, now=now),
                each.call,
                each.result,
            )
            for seq, each in enumerate(changed_calls, first)
        ]
        await tx.events.insert([each.event for each in contexts])
        await self._fan_out.deliver_new_events(tx, contexts)
        tx.notify(*(call_changed_topic(each.call.id) for each in changed_calls), log_appended_topic(principal))

    async def _append_event(self, tx: Transaction, event: Event) -> None:
        """What happened to no call."""
        await tx.events.insert([event])
        await self._fan_out.deliver_new_events(tx, [EventContext(event)])
        tx.notify(log_appended_topic(event.principal))


async def find_matching_webhooks(tx: Transaction, event: Event) -> list[Webhook]:
    """The webhooks that hear this event: the store proposes, the domain decides."""
    (candidates,) = await tx.webhooks.find_candidates([event], catching_up=True)
    return [webhook for webhook in candidates if matches_event(webhook, event, now=tx.now())]


def _principal_key(changed_call: ChangedCall) -> Principal:
    return changed_call.call.principal
