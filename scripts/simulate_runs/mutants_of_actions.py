"""Bugs put in on purpose into what operators, owners and logins bring about. `mutants` has the others."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from ringback.domain.delivery import Delivery
from ringback.domain.erasure import Erasure
from ringback.domain.event import Event
from ringback.domain.ports import Transaction
from ringback.domain.webhook import Webhook, with_rotated_secret
from ringback.notifier.requested_deliveries import RequestedDeliveries
from ringback.services import erasure_batches
from ringback.services.calls.cancellation import BulkCancellations
from ringback.services.upstreams.upstream_controls import UpstreamControls
from ringback.services.webhooks import event_subscriptions, webhooks
from ringback.services.webhooks.subscription_starts import SubscriptionStart
from ringback.storage.rows.login_waits import SqlLoginWaits
from ringback.storage.rows.upstreams import SqlUpstreamControls
from scripts.simulate_runs.mutant import Mutant, Patch


def _forget_pauses() -> Sequence[Patch]:
    async def save_nothing(*_args: Any) -> None:
        """An operator's decision is acknowledged, and not stored."""

    return [(SqlUpstreamControls, "save", save_nothing)]


def _ignore_drains() -> Sequence[Patch]:
    async def allow(*_args: Any) -> None:
        return None

    return [(UpstreamControls, "require_not_draining", allow)]


def _skip_cancellations() -> Sequence[Patch]:
    async def cancel_nothing(*_args: Any, **_named: Any) -> list[bool]:
        return []

    return [(BulkCancellations, "_cancel_page", cancel_nothing)]


def _skip_redeliveries() -> Sequence[Patch]:
    async def insert_nothing(*arguments: Any) -> Sequence[Delivery]:
        """The response counts deliveries that do not exist."""
        return arguments[-1]

    return [(RequestedDeliveries, "insert_replays", insert_nothing)]


def _end_earlier_secrets() -> Sequence[Patch]:
    def rotate_hard(webhook: Webhook, secret: str, *, now: Any, overlap_seconds: float) -> Webhook:  # noqa: ARG001
        return with_rotated_secret(webhook, secret, now=now, overlap_seconds=0.0)

    return [(webhooks, "with_rotated_secret", rotate_hard)]


def _keep_labels_of_erased_events() -> Sequence[Patch]:
    def erase_data(event: Event) -> Event:
        return replace(event, data={**event.data, "erased": True})

    return [(erasure_batches, "erase_event", erase_data)]


def _finish_erasures_at_once() -> Sequence[Patch]:
    async def finish(tx: Transaction, erasure: Erasure, _rows: int) -> Erasure:
        return replace(erasure, finished_at=tx.now())

    return [(erasure_batches, "_run_first_step", finish)]


def _lose_calls_that_wait_for_logins() -> Sequence[Patch]:
    async def list_nothing(*_args: Any, **_named: Any) -> list[Any]:
        return []

    return [(SqlLoginWaits, "list_waiting", list_nothing)]


def _ignore_cursors_of_subscriptions() -> Sequence[Patch]:
    async def begin_at_end(*_args: Any, head: int, **_named: Any) -> SubscriptionStart:
        return SubscriptionStart(after_seq=head, truncated=False, began_after=head)

    return [(event_subscriptions, "find_start", begin_at_end)]


MUTANTS_OF_ACTIONS: Final = (
    Mutant("lost cursor", "a lapsed subscription begins again at the end of the log", _ignore_cursors_of_subscriptions),
    Mutant("lost pause", "a pause is acknowledged and not stored", _forget_pauses),
    Mutant("no drain", "a drained upstream gets new calls", _ignore_drains),
    Mutant("no bulk cancel", "a bulk cancellation reports success and cancels nothing", _skip_cancellations),
    Mutant("no redelivery", "a redelivery counts deliveries that it does not insert", _skip_redeliveries),
    Mutant("no overlap", "a rotated secret ends the earlier one at once", _end_earlier_secrets),
    Mutant("kept labels", "erased events keep their correlation id", _keep_labels_of_erased_events),
    Mutant("no erasure", "an erasure is finished before it erases anything", _finish_erasures_at_once),
    Mutant("lost login", "a login does not find the calls that wait for it", _lose_calls_that_wait_for_logins),
)
