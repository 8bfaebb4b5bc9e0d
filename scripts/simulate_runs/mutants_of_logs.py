"""Bugs put in on purpose into publishing, reading and keys. `mutants` has the others."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from ringback.domain.event import ExternalEvent
from ringback.domain.ids import EventId
from ringback.services.events import event_polls, event_publishing
from ringback.services.events.event_polls import LogStart
from ringback.services.events.event_publishing import EventPublishing, PublishedEvent, PublishedResult
from ringback.services.events.log_tails import TailSubscription
from ringback.storage.rows.api_keys import SqlApiKeys
from ringback.storage.rows.encryption import SqlSealedValues
from ringback.storage.signals import LocalSignals
from scripts.simulate_runs.mutant import Mutant, Patch, keep_task


def _forget_ids_of_publishers() -> Sequence[Patch]:
    original = event_publishing._to_external_event  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]

    def without_id(event: PublishedEvent) -> ExternalEvent:
        return replace(original(event), id=None)

    return [(event_publishing, "_to_external_event", without_id)]


def _publish_after_response() -> Sequence[Patch]:
    original = EventPublishing.publish_events

    async def respond_first(self: Any, caller: Any, events: Sequence[PublishedEvent]) -> Sequence[PublishedResult]:
        keep_task(original(self, caller, events))
        return [PublishedResult(event_id=EventId(event.id or ""), created=False) for event in events]

    return [(EventPublishing, "publish_events", respond_first)]


def _stay_deaf() -> Sequence[Patch]:
    def notify_nobody(_self: Any) -> None:
        """The node listens again, and no waiter learns that notifications were lost."""

    return [(LocalSignals, "notify_all", notify_nobody)]


def _do_not_reread() -> Sequence[Patch]:
    def notify_only(self: TailSubscription) -> None:
        self.waiter.notify()

    return [(TailSubscription, "require_reread", notify_only)]


def _poll_from_now() -> Sequence[Patch]:
    original = event_polls.read_log_start

    async def read_end(tx: Any, principal: Any, request: Any) -> LogStart:
        return await original(tx, principal, replace(request, cursor=None))

    return [(event_polls, "read_log_start", read_end)]


def _keep_replaced_keys() -> Sequence[Patch]:
    original = SqlApiKeys.replace

    async def replace_without_end(self: Any, key_id: Any, *, expires_at: Any, **named: Any) -> bool:
        return await original(self, key_id, expires_at=expires_at + timedelta(days=1), **named)

    return [(SqlApiKeys, "replace", replace_without_end)]


def _end_replaced_keys() -> Sequence[Patch]:
    original = SqlApiKeys.replace

    async def replace_at_once(self: Any, key_id: Any, *, now: Any, **named: Any) -> bool:
        return await original(self, key_id, now=now, **{**named, "expires_at": now})

    return [(SqlApiKeys, "replace", replace_at_once)]


def _revoke_nothing() -> Sequence[Patch]:
    async def write_nothing(*_args: Any, **_named: Any) -> bool:
        return True

    return [(SqlApiKeys, "revoke", write_nothing)]


def _reseal_nothing() -> Sequence[Patch]:
    async def write_nothing(*_args: Any) -> bool:
        return True

    return [(SqlSealedValues, "_reseal_row", write_nothing)]


MUTANTS_OF_LOGS: Final = (
    Mutant("second publication", "the id of a publisher does not find its earlier event", _forget_ids_of_publishers),
    Mutant("early publication", "a publication is acknowledged before its commit", _publish_after_response),
    Mutant("deaf node", "a node that listens again does not read what it may have missed", _stay_deaf),
    Mutant("gap in a stream", "a stream does not read the events between its first page and its tail", _do_not_reread),
    Mutant("poll from now", "a poll begins at the end of the log instead of at its cursor", _poll_from_now),
    Mutant("lasting key", "a replaced API key is valid for a day after its overlap", _keep_replaced_keys),
    Mutant("no key overlap", "a rotation ends the earlier API key at once", _end_replaced_keys),
    Mutant("no revocation", "a revoked API key stays valid", _revoke_nothing),
    Mutant("no resealing", "a rotation of the sealing key leaves what is stored", _reseal_nothing),
)
