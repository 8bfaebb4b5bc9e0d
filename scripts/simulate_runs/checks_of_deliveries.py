"""Every event reaches each webhook that matches it, or is dead and says so; in order, where that was promised."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from scripts.simulate_runs.history import ReceivedCallback
from scripts.simulate_runs.plan import PUBLISHED_EVENT, ActionKind, PlannedReceiver, PlannedWebhook, ReceiverTrouble
from scripts.simulate_runs.records import StoredCall, StoredDelivery, StoredEvent
from scripts.simulate_runs.rules import CLOCK_ERROR_MILLISECONDS, Rule, Violation
from scripts.simulate_runs.run import SimulationResult

ATTEMPTS_BEFORE_DEATH: Final = 5
"""The `minutes` schedule: a first attempt, and one after each of its four pauses."""
_CALL_EVENTS: Final = frozenset({"call.finished", "call.input_required"})


def find_delivery_violations(result: SimulationResult) -> Iterator[Violation]:
    deliveries: defaultdict[tuple[str, str | None], list[StoredDelivery]] = defaultdict(list)
    for delivery in result.records.deliveries:
        deliveries[delivery.webhook_id, delivery.event_id].append(delivery)
    calls = {call.id: call for call in result.records.calls}
    for webhook_id, event in _find_expected(result, calls):
        yield from _check_delivery(result, webhook_id, event, deliveries[webhook_id, event.id])
    yield from _check_callbacks(result)
    yield from _check_bodies(result)
    yield from _check_repetitions(result)
    yield from _check_order(result)


# -- what must arrive --


def _find_expected(result: SimulationResult, calls: Mapping[str, StoredCall]) -> Iterator[tuple[str, StoredEvent]]:
    """Each event with each webhook that must receive it, as the plan and the acknowledgements say."""
    planned = {each.name: each for each in result.plan.webhooks}
    for name, (webhook_id, registered_at) in result.history.webhooks.items():
        if webhook_id in result.history.truncated_subscriptions:
            continue  # its client was informed, and reads the log
        if webhook_id not in result.history.removed_webhooks and not result.history.is_principal_erased(
            planned[name].principal
        ):
            for event in result.records.events:
                if event.created_at > registered_at + CLOCK_ERROR_MILLISECONDS and _matches(
                    planned[name], event, calls
                ):
                    yield webhook_id, event
    for seen in result.history.calls.values():
        of_call = [each for each in result.records.webhooks if each.id in seen.webhook_ids and each.call_id is not None]
        for webhook in of_call:
            for event in result.records.events:
                if event.call_id == webhook.call_id and event.name in _CALL_EVENTS:
                    yield webhook.id, event


def _matches(planned: PlannedWebhook, event: StoredEvent, calls: Mapping[str, StoredCall]) -> bool:
    if event.name == PUBLISHED_EVENT and event.principal == planned.principal:
        return planned.hears_published and planned.upstream is None and planned.outcomes is None
    call = calls.get(event.call_id or "")
    if call is None or event.principal != planned.principal or event.name not in _CALL_EVENTS:
        return False  # progress is replaced by newer progress, so it may be missing
    if planned.refresh_seconds is not None and event.name != "call.finished":
        return False  # a subscription is to one event
    if planned.upstream is not None and call.upstream != planned.upstream:
        return False
    return event.name != "call.finished" or planned.outcomes is None or event.outcome in planned.outcomes


def _check_delivery(
    result: SimulationResult, webhook_id: str, event: StoredEvent, found: list[StoredDelivery]
) -> Iterator[Violation]:
    about = f"{event.name} {event.id} of {event.call_id} for {webhook_id}"
    if not found:
        yield Violation(Rule.LOST_EVENTS, f"there is no delivery of {about}")
    if webhook_id in result.history.second_lives and any(each.state in {"delivered", "dead"} for each in found):
        found = [each for each in found if each.state != "cancelled"]  # with an earlier life
    for delivery in found:
        heard = [
            callback
            for callback in result.history.callbacks
            if callback.message_id == event.id and callback.webhook_id == webhook_id and callback.was_accepted
        ]
        if delivery.state == "delivered" and not heard:
            yield Violation(Rule.LOST_EVENTS, f"{about} counts as delivered, and no receiver accepted it")
        if delivery.state not in {"delivered", "dead"}:
            yield Violation(
                Rule.LOST_EVENTS, f"{about} is {delivery.state} at the end, after {delivery.attempts} attempts"
            )
        if delivery.state == "dead" and delivery.attempts < ATTEMPTS_BEFORE_DEATH and not _was_gone(result, webhook_id):
            yield Violation(Rule.LOST_EVENTS, f"{about} is dead after {delivery.attempts} attempts only")


def _was_gone(result: SimulationResult, webhook_id: str) -> bool:
    """Whether the receiver of this webhook was gone at some time. One such answer ends the webhook, and all its deliveries."""
    receiver = _find_receiver(result, webhook_id)
    return receiver is None or any(each.trouble is ReceiverTrouble.GONE for each in receiver.troubles)


def _find_receiver(result: SimulationResult, webhook_id: str) -> PlannedReceiver | None:
    """Whom the plan lets this webhook call: a webhook of its own, or the callback of a call."""
    names = {webhook.name: webhook.receiver for webhook in result.plan.webhooks}
    by_id = {registered: names[name] for name, (registered, _) in result.history.webhooks.items()}
    callbacks = {call.key: call.callback for call in result.plan.calls}
    for key, seen in result.history.calls.items():
        by_id.update(dict.fromkeys(seen.webhook_ids - by_id.keys(), callbacks[key] or ""))
    return next((each for each in result.plan.receivers if each.name == by_id.get(webhook_id)), None)


# -- what may arrive --


def _check_callbacks(result: SimulationResult) -> Iterator[Violation]:
    events = {event.id: event for event in result.records.events}
    for callback in result.history.callbacks:
        about = f"{callback.message_id} at {callback.receiver}"
        if not callback.is_verified:
            yield Violation(Rule.FALSE_CALLBACKS, f"the signature of {about} does not verify")
        event = events.get(callback.message_id)
        if callback.body.get("type") in {"gap", "terminated"}:
            continue
        if event is None and any(result.history.is_principal_erased(each) for each in result.records.heads):
            continue
        if event is None:
            yield Violation(Rule.FALSE_CALLBACKS, f"{about} is about an event that is not in the log")
        elif event.outcome != callback.body["data"].get("outcome"):
            yield Violation(Rule.FALSE_CALLBACKS, f"{about} has another outcome than the log")


def _check_bodies(result: SimulationResult) -> Iterator[Violation]:
    """All callbacks of an event to one webhook have the same body, unless the webhook is a subscription that began again.

    Each life of a subscription has its own place in the log, and an event that was erased is sent as its stub. After the stub,
    the full body arrives only from nodes that had leased its delivery before it was erased: at most once for each lease.
    """
    firsts: dict[tuple[str, str], dict[bool, ReceivedCallback]] = defaultdict(dict)
    full_after_stub: Counter[tuple[str, str]] = Counter()
    for callback in result.history.callbacks:
        key, is_stub = (callback.webhook_id, callback.message_id), _is_stub(callback)
        begins_again = callback.webhook_id in result.history.second_lives
        first = firsts[key].setdefault(is_stub, callback)
        full_after_stub[key] += not is_stub and True in firsts[key]
        is_same = callback.body == first.body or (begins_again and _has_same_data(callback, first))
        has_one_kind = begins_again or len(firsts[key]) == 1
        if not (is_same and has_one_kind) or full_after_stub[key] > result.history.revoked_leases[key]:
            about = f"{callback.message_id} at {callback.receiver}"
            yield Violation(Rule.FALSE_CALLBACKS, f"{about} came with two bodies")


def _is_stub(callback: ReceivedCallback) -> bool:
    return bool(callback.body.get("data", {}).get("erased"))


def _has_same_data(callback: ReceivedCallback, other: ReceivedCallback) -> bool:
    return callback.body | {"cursor": None} == other.body | {"cursor": None}


def _check_repetitions(result: SimulationResult) -> Iterator[Violation]:
    """A webhook receives one end of a call; and it once, if nothing failed and its receiver always responded."""
    ends: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    accepted: Counter[tuple[str, str]] = Counter()
    for callback in result.history.callbacks:
        if callback.body.get("name") == "call.finished":
            ends[callback.webhook_id, callback.body["data"]["call_id"]].add(callback.message_id)
        accepted[callback.webhook_id, callback.message_id] += callback.was_accepted
    for (webhook_id, call_id), message_ids in ends.items():
        if len(message_ids) > 1:
            yield Violation(Rule.SECOND_EVENTS, f"{webhook_id} heard of the end of {call_id} as {sorted(message_ids)}")
    for (webhook_id, message_id), count in accepted.items():
        is_repeated = any(each.planned.kind is ActionKind.REDELIVER for each in result.history.actions)
        is_repeated |= webhook_id in result.history.second_lives
        if count > 1 and not is_repeated and not result.history.disturbances and _always_answered(result, webhook_id):
            yield Violation(Rule.SECOND_EVENTS, f"{webhook_id} accepted {message_id} {count} times")


def _always_answered(result: SimulationResult, webhook_id: str) -> bool:
    receiver = _find_receiver(result, webhook_id)
    return receiver is not None and all(
        each.trouble is not ReceiverTrouble.FORGETS_TO_ANSWER for each in receiver.troubles
    )


def _check_order(result: SimulationResult) -> Iterator[Violation]:
    """The first acceptances of the events of one order key are in the order of the log."""
    events = {event.id: event for event in result.records.events}
    accepted: dict[tuple[str, str], float] = {}
    for callback in result.history.callbacks:
        if callback.was_accepted:
            accepted.setdefault((callback.webhook_id, callback.message_id), callback.at_seconds)
    by_key: defaultdict[tuple[str, str], list[StoredDelivery]] = defaultdict(list)
    for delivery in result.records.deliveries:
        if delivery.order_key is not None and delivery.event_id in events and delivery.kind == "event":
            by_key[delivery.webhook_id, delivery.order_key].append(delivery)
    for (webhook_id, order_key), deliveries in by_key.items():
        latest = -1.0
        for delivery in sorted(deliveries, key=lambda each: each.seq or 0):
            at_seconds = accepted.get((webhook_id, delivery.event_id or ""))
            if at_seconds is None or delivery.state != "delivered":
                continue
            if at_seconds < latest:
                yield Violation(Rule.ORDER, f"{webhook_id} received {delivery.event_id} of {order_key} too late")
            latest = max(latest, at_seconds)
