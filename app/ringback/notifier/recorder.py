"""Records each change of a call or webhook: its row, its events and their deliveries, in the caller's one transaction."""

import itertools
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from ringback.attended_calls import AttendedCalls, CallEnd
from ringback.domain import jsontext
from ringback.domain.call import Call, CallPhase, Progress
from ringback.domain.call_completion import recover_call
from ringback.domain.call_outcome import CallCompletion, CallOutcome
from ringback.domain.call_rows import CallChange
from ringback.domain.event import (
    EventName,
    ExternalEvent,
    build_call_event,
    build_external_event,
    build_upstream_event,
)
from ringback.domain.event_rows import ReservedPlaces
from ringback.domain.ids import CallId, EventId, IdGenerator
from ringback.domain.log_appends import NOTHING_ELSE, CallLeaseKey, LogAppend
from ringback.domain.login_waits import awaits_login
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import CALL_QUEUED_TOPIC, DELIVERY_DUE_TOPIC, call_changed_topic, log_appended_topic
from ringback.domain.webhook import Webhook, WebhookState
from ringback.domain.webhook_health import build_webhook_event, webhook_after_end
from ringback.domain.webhook_rows import WebhookPart
from ringback.measurements import Measurements
from ringback.notifier import call_ends
from ringback.notifier.call_ends import AppliedEnd, CompletionRequest, LeasedCompletion
from ringback.notifier.fan_out import EventContext, FanOut
from ringback.notifier.log_positions import read_log_position
from ringback.notifier.payload import build_gap_delivery, build_terminated_delivery
from ringback.telemetry.logs import call_facts

log = logging.getLogger(__name__)

_ACCEPTED_OUTCOMES: Final = frozenset({CallOutcome.RESULT, CallOutcome.TOOL_ERROR, CallOutcome.UPSTREAM_ERROR})
"""Of calls that the upstream ran: it required no login for them."""


class ChangedCall(NamedTuple):
    """A call after its change, and its result if it has ended."""

    call: Call
    result: bytes | None = None


class ProgressQuota(Protocol):
    async def has_free_progress_quota(self, tx: Transaction, principal: Principal) -> bool:
        """Whether progress of the principal's calls gets events: they are many, and stay in the log for weeks."""
        ...


RequireEventQuota = Callable[[Transaction, int], Awaitable[None]]
"""Raises `QuotaExceeded` unless events with so many bytes of `data` fit into the log."""


class RecordedEvent(NamedTuple):
    event_id: EventId
    is_new: bool
    """False if the log had an event with this id and topic."""


class Recorder:
    """Every change of a call that has an event goes through here. Every method runs inside the caller's transaction."""

    def __init__(
        self,
        *,
        ids: IdGenerator,
        fan_out: FanOut,
        attended_calls: AttendedCalls,
        measurements: Measurements,
        result_retention_seconds: float,
        progress_quota: ProgressQuota | None = None,
    ) -> None:
        """Without `progress_quota`, all progress gets events."""
        self._ids = ids
        self._fan_out = fan_out
        self._attended_calls = attended_calls
        self._measurements = measurements
        self._result_retention_seconds = result_retention_seconds
        self._progress_quota = progress_quota

    async def finish_call(
        self, tx: Transaction, call: Call, completion: CallCompletion, *, lease_token: str | None
    ) -> Call | None:
        """Record the end of the call. None, and nothing is written, if another transaction changed or leased the call first."""
        (finished,) = await self.finish_calls(
            tx, [CompletionRequest(call=call, completion=completion, lease_token=lease_token)]
        )
        return finished

    async def finish_calls(self, tx: Transaction, requests: Sequence[CompletionRequest]) -> Sequence[Call | None]:
        """As `finish_call`, for several calls in this order.

        As in every transaction, rows of calls are locked before the heads of logs, and these in the order of principals.
        """
        ends = self._apply_completions(tx, requests)
        written = await tx.call_completions.end_many([each.row for each in ends.values()])
        ends = {place: each for place, each in ends.items() if each.row.call.id in written}
        places = await tx.log_appends.reserve_places(Counter(each.row.call.principal for each in ends.values()))
        await self._append_ends(tx, ends.values(), places, NOTHING_ELSE)
        return call_ends.list_finished(requests, ends)

    async def finish_leased_calls(
        self, tx: Transaction, completions: Sequence[LeasedCompletion]
    ) -> Sequence[Call | None]:
        """As `finish_calls`, for calls as their rows are now; None for each call whose lease is lost.

        Their rows are locked in the order of their ids, as an extension of leases locks them.
        """
        leases = [CallLeaseKey(each.call_id, each.lease_token) for each in completions]
        calls, places = await tx.log_appends.lock_leased_calls(leases)
        requests = [call_ends.build_completion_request(calls.get(each.call_id), each) for each in completions]
        ends = self._apply_completions(tx, requests)
        await self._append_ends(tx, ends.values(), places, LogAppend(ends=[each.row for each in ends.values()]))
        return call_ends.list_finished(requests, ends)

    async def recover_calls(self, tx: Transaction, lost: Sequence[Call]) -> None:
        """Queue the calls that can go on without the process that ran them, and finish the others (`recover_call`)."""
        requests: list[CompletionRequest] = []
        for call in lost:
            recovered = recover_call(call, now=tx.now())
            if isinstance(recovered, CallCompletion):
                requests.append(CompletionRequest(call=call, completion=recovered, lease_token=None))
            else:
                await tx.calls.update(recovered, CallChange.QUEUED, expected=call.status, lease_token=None)
                tx.notify(CALL_QUEUED_TOPIC, call_changed_topic(call.id))
        await self.finish_calls(tx, requests)

    async def record_input_requests(
        self, tx: Transaction, call: Call, updated: Call, *, lease_token: str | None
    ) -> bool:
        """Write changed input requests, with an event if there are new ones. False if another transaction changed the call."""
        change = CallChange.PARKED if updated.phase is CallPhase.PARKED is not call.phase else CallChange.INPUTS
        if not await tx.calls.update(updated, change, expected=call.status, lease_token=lease_token):
            return False
        if updated.input_round != call.input_round:
            await self._append_call_event(tx, EventName.CALL_INPUT_REQUIRED, updated)
        tx.notify(call_changed_topic(call.id))
        return True

    async def record_progress(self, tx: Transaction, call: Call, progress: Progress, *, lease_token: str) -> bool:
        """Write the latest progress, and its event if the quotas allow one. False if the lease is lost."""
        # The runner has the call as it was at its dispatch; its resume tokens may have been revoked since.
        latest = await tx.calls.get(call.id)
        if latest is None or latest.is_final:
            return False
        updated = replace(latest, progress=progress, updated_at=tx.now())
        if not await tx.calls.update(updated, CallChange.PROGRESS, expected=latest.status, lease_token=lease_token):
            return False
        await self._append_progress(tx, updated)
        return True

    async def record_reported_progress(self, tx: Transaction, call: Call) -> None:
        """As `record_progress`, for a call that a client runs and reports. The caller holds the lock of its row."""
        await tx.calls.update(call, CallChange.PROGRESS, expected=call.status, lease_token=None)
        await self._append_progress(tx, call)

    async def _append_progress(self, tx: Transaction, call: Call) -> None:
        if self._progress_quota is None or await self._progress_quota.has_free_progress_quota(tx, call.principal):
            await self._append_call_event(tx, EventName.CALL_PROGRESS, call)
        else:
            tx.notify(call_changed_topic(call.id))

    async def enqueue_gap(self, tx: Transaction, webhook: Webhook, *, after_seq: int | None = None) -> None:
        """Insert a gap for a webhook registered with a cursor: the log lacks events after this place.

        With a cursor of a lost log there is no such place, and the receiver polls from the oldest event.
        """
        if after_seq is None:
            after_seq = await tx.event_log.get_retention_floor(webhook.principal)
        position = await read_log_position(tx, webhook.principal, after_seq)
        gap = build_gap_delivery(webhook, position=position, delivery_id=self._ids.new_delivery_id(), now=tx.now())
        await tx.deliveries.insert([gap])
        tx.notify(DELIVERY_DUE_TOPIC)

    async def enqueue_terminated(self, tx: Transaction, webhook: Webhook, error: Mapping[str, Any]) -> Webhook:
        """End the subscription, and insert the envelope that says so. The caller holds the locks of its row and of its log.

        `error` is the JSON-RPC error object, with the code of the client's profile. The row stays until the envelope was sent
        or given up, because the attempts need its URL and secrets; then the janitor removes it as expired. Nothing is sent to
        a URL that was not verified, or to a disabled webhook.
        """
        ended = webhook_after_end(webhook, now=tx.now())
        await tx.webhooks.update(ended, WebhookPart.SETTINGS, WebhookPart.STATE, WebhookPart.HEALTH)
        if ended.state not in {WebhookState.PENDING_VERIFICATION, WebhookState.DISABLED}:
            delivery_id = self._ids.new_delivery_id()
            await tx.deliveries.insert([build_terminated_delivery(ended, error, delivery_id=delivery_id, now=tx.now())])
            tx.notify(DELIVERY_DUE_TOPIC)
        return ended

    async def record_webhook_event(self, tx: Transaction, name: EventName, webhook: Webhook) -> None:
        """Append an event about the webhook to its owner's log, and deliver it to the owner's matching webhooks."""
        seq, now = await tx.events.reserve_places(webhook.principal, 1)
        event = build_webhook_event(webhook, name, event_id=self._ids.new_event_id(), seq=seq, now=now)
        await self._append_events(tx, [EventContext(event)])

    async def record_upstream_change(
        self, tx: Transaction, principal: Principal, upstream: str, *, change: str, uri: str | None
    ) -> None:
        """Append the event that a list or a resource of the upstream has changed."""
        seq, now = await tx.events.reserve_places(principal, 1)
        event = build_upstream_event(
            principal, upstream, change=change, uri=uri, event_id=self._ids.new_event_id(), seq=seq, now=now
        )
        await self._append_events(tx, [EventContext(event)])

    async def record_external_events(
        self,
        tx: Transaction,
        principal: Principal,
        events: Sequence[ExternalEvent],
        *,
        require_quota: RequireEventQuota | None = None,
    ) -> Sequence[RecordedEvent]:
        """Append events of one topic that an upstream sent or a client published, each id once. Locks the log.

        `require_quota` is called with the bytes of those that are new.
        """
        await tx.event_log.get_head(
            principal, lock=True
        )  # so that the same event from two requests is found by the second
        given_ids = {event.id for event in events if event.id is not None}
        topic = events[0].topic if events else None
        known = set(await tx.events.find_known_ids(principal, given_ids, topic=topic)) if given_ids else set[EventId]()
        recorded: list[RecordedEvent] = []
        new: list[tuple[EventId, ExternalEvent]] = []
        for event in events:
            event_id = event.id or self._ids.new_event_id()
            recorded.append(RecordedEvent(event_id, event_id not in known))
            if event_id not in known:
                known.add(event_id)
                new.append((event_id, event))
        if new:
            if require_quota is not None:
                await require_quota(tx, sum(len(jsontext.dumps(event.data)) for _, event in new))
            first, now = await tx.events.reserve_places(principal, len(new))
            await self._append_events(
                tx,
                [
                    EventContext(build_external_event(principal, event, event_id=event_id, seq=seq, now=now))
                    for seq, (event_id, event) in enumerate(new, first)
                ],
            )
        return recorded

    def _apply_completions(
        self, tx: Transaction, requests: Sequence[CompletionRequest | None]
    ) -> dict[int, AppliedEnd]:
        return call_ends.apply_completions(
            requests, now=tx.now(), result_retention_seconds=self._result_retention_seconds
        )

    async def _append_ends(
        self,
        tx: Transaction,
        ends: Collection[AppliedEnd],
        places: Mapping[Principal, ReservedPlaces],
        append: LogAppend,
    ) -> None:
        """Write the results and events of these ends, and the rows of `append`."""
        if not ends:
            return
        await _remove_login_waits(tx, ends)
        ended = [ChangedCall(each.row.call, each.request.completion.result) for each in ends]
        results = {each.call.id: each.result for each in ended if each.result is not None}
        append = replace(append, results=results)
        delivered = await self._append_call_events(tx, EventName.CALL_FINISHED, ended, places, append)
        tx.on_commit(partial(self._publish_ends, ended, delivered))

    def _publish_ends(self, ended: Sequence[ChangedCall], delivered: Collection[CallId]) -> None:
        for call, result in ended:
            self._measurements.record_end(call)
            log.info("call.finished", extra={**call_facts(call), "tool": call.tool, "outcome": str(call.outcome)})
            has_earlier_events = call.input_round > 0 or call.progress is not None
            self._attended_calls.publish_end(
                CallEnd(call=call, result=result, has_deliveries=has_earlier_events or call.id in delivered)
            )

    async def _append_call_event(self, tx: Transaction, name: EventName, call: Call) -> None:
        places = await tx.log_appends.reserve_places({call.principal: 1})
        await self._append_call_events(tx, name, [ChangedCall(call)], places, NOTHING_ELSE)

    async def _append_call_events(
        self,
        tx: Transaction,
        name: EventName,
        changed_calls: Sequence[ChangedCall],
        places: Mapping[Principal, ReservedPlaces],
        append: LogAppend,
    ) -> Collection[CallId]:
        """Append one event for each call, in this order, at these places. Return the calls that have deliveries of it."""
        seqs = {principal: itertools.count(reserved.first_seq) for principal, reserved in places.items()}
        contexts = [
            EventContext(
                build_call_event(
                    name,
                    each.call,
                    event_id=self._ids.new_event_id(),
                    seq=next(seqs[each.call.principal]),
                    now=places[each.call.principal].created_at,
                ),
                each.call,
                each.result,
            )
            for each in changed_calls
        ]
        tx.notify(*(call_changed_topic(each.call.id) for each in changed_calls))
        return await self._append_events(tx, contexts, append)

    async def _append_events(
        self, tx: Transaction, contexts: Sequence[EventContext], append: LogAppend = NOTHING_ELSE
    ) -> Collection[CallId]:
        delivered = await self._fan_out.append_events(tx, contexts, append)
        tx.notify(*dict.fromkeys(log_appended_topic(each.event.principal) for each in contexts))
        return delivered


async def _remove_login_waits(tx: Transaction, ends: Collection[AppliedEnd]) -> None:
    """Ended calls wait for no login: their rows would come before those of other principals' calls at the next login."""
    waiting = [each for each in ends if awaits_login(each.request.call)]
    accepted = [each.row.call.id for each in waiting if each.request.completion.outcome in _ACCEPTED_OUTCOMES]
    if accepted:
        await tx.login_checks.resume_others(accepted, now=tx.now())
    if waiting:
        await tx.login_waits.remove([each.row.call.id for each in waiting])
