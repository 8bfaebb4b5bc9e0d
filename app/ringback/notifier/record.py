"""Writing down what happened: the call or webhook, its events and their deliveries, in the caller's one transaction."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

from ringback.domain import call as calls
from ringback.domain.call import Call, Ending, Phase, Progress
from ringback.domain.call_rows import Change
from ringback.domain.delivery import DeliveryState
from ringback.domain.event import Event, EventName, event_of, event_of_upstream
from ringback.domain.health import event_about
from ringback.domain.ids import Ids
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import DUE, appended, changed
from ringback.domain.webhook import Webhook, hears
from ringback.notifier.body import Bodies
from ringback.notifier.catch_up import CatchUps
from ringback.notifier.envelopes import gap
from ringback.notifier.fan_out import FanOut, Happened
from ringback.notifier.handover import Handover
from ringback.notifier.places import place_at


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """A call that is to end, as its row is now."""

    call: Call
    ending: Ending
    lease_token: str | None
    """Whoever still holds it may write; None for what nobody holds."""


class Told(NamedTuple):
    """A call to be told of, as it has become; with the result that it has ended with."""

    call: Call
    result: bytes | None = None


class Recorder:
    """Whoever changes a call does it through here. Every method runs inside a transaction of its caller's."""

    def __init__(self, *, ids: Ids, bodies: Bodies, result_retention_seconds: float) -> None:
        self.handover = Handover()
        """Where a dispatcher of this process takes deliveries right after the commit."""
        self._ids = ids
        self._fan_out = FanOut(ids=ids, bodies=bodies, handover=self.handover)
        self.catch_ups = CatchUps(self._fan_out)
        """How webhooks hear what was recorded before them."""
        self._result_retention_seconds = result_retention_seconds

    async def finish(self, tx: Transaction, call: Call, ending: Ending, *, lease_token: str | None) -> Call | None:
        """End the call and tell everybody. None when somebody else changed or took it first: then nothing is written."""
        (ended,) = await self.finish_all(tx, [End(call=call, ending=ending, lease_token=lease_token)])
        return ended

    async def finish_all(self, tx: Transaction, ends: Sequence[End]) -> Sequence[Call | None]:
        """As `finish`, for each of them in their order.

        The rows of calls are locked before the heads of logs, and those in the order of their principals, here as everywhere.
        """
        ended = [await self._end(tx, end) for end in ends]
        told = [Told(call, end.ending.result) for call, end in zip(ended, ends, strict=True) if call is not None]
        await tx.calls.put_results({each.call.id: each.result for each in told if each.result is not None})
        for _, of_principal in groupby(sorted(told, key=_principal), key=_principal):
            await self._append(tx, EventName.CALL_FINISHED, list(of_principal))
        return ended

    async def ask(self, tx: Transaction, call: Call, asked: Call, *, lease_token: str | None) -> bool:
        """Write a call whose questions have changed, and tell everybody if there are new ones. False as with `finish`."""
        change = Change.PARKED if asked.phase is Phase.PARKED is not call.phase else Change.INPUTS
        if not await tx.calls.update(asked, change, expected=call.status, lease_token=lease_token):
            return False
        if asked.input_round != call.input_round:
            await self._append(tx, EventName.CALL_INPUT_REQUIRED, [Told(asked)])
        tx.ring(changed(call.id))
        return True

    async def progress(self, tx: Transaction, call: Call, progress: Progress, *, lease_token: str) -> bool:
        """Store the last progress and tell whoever listens to it. False when the lease is lost."""
        # The runner knows a call as it was at its dispatch; its tokens may have been revoked since.
        latest = await tx.calls.get(call.id)
        if latest is None or latest.final:
            return False
        told = replace(latest, progress=progress, updated_at=tx.now())
        if not await tx.calls.update(told, Change.PROGRESS, expected=latest.status, lease_token=lease_token):
            return False
        await self._append(tx, EventName.CALL_PROGRESS, [Told(told)])
        return True

    async def told_progress(self, tx: Transaction, call: Call) -> None:
        """Store the progress of a call that nobody here drives, and tell whoever listens to it. The caller holds its row."""
        await tx.calls.update(call, Change.PROGRESS, expected=call.status, lease_token=None)
        await self._append(tx, EventName.CALL_PROGRESS, [Told(call)])

    async def tell_gap(self, tx: Transaction, webhook: Webhook) -> None:
        """Tell a webhook that was registered with a place in a lost log that it hears from now on, and from where to poll."""
        oldest = await place_at(tx, webhook.principal, await tx.event_places.horizon(webhook.principal))
        told = gap(webhook, after=oldest, delivery_id=self._ids.delivery(), now=tx.now())
        await tx.deliveries.insert([replace(told, state=DeliveryState.HELD if webhook.holds() else told.state)])
        tx.ring(DUE)

    async def tell(self, tx: Transaction, name: EventName, webhook: Webhook) -> None:
        """Tell the webhook's owner what has become of it, through the log and every other webhook that wants to know."""
        seq = await tx.events.reserve(webhook.principal, 1)
        await self._publish(tx, event_about(webhook, name, event_id=self._ids.event(), seq=seq, now=tx.now()))

    async def upstream_changed(
        self, tx: Transaction, principal: Principal, upstream: str, *, what: str, uri: str | None
    ) -> None:
        """Tell the principal that a list or a resource of the upstream has changed."""
        seq = await tx.events.reserve(principal, 1)
        event = event_of_upstream(
            principal, upstream, what=what, uri=uri, event_id=self._ids.event(), seq=seq, now=tx.now()
        )
        await self._publish(tx, event)

    async def _end(self, tx: Transaction, end: End) -> Call | None:
        retention_seconds = self._result_retention_seconds
        ended = calls.finish(end.call, end.ending, now=tx.now(), result_retention_seconds=retention_seconds)
        ours = await tx.calls.update(ended, Change.ENDED, expected=end.call.status, lease_token=end.lease_token)
        return ended if ours else None

    async def _append(self, tx: Transaction, name: EventName, told: Sequence[Told]) -> None:
        """What has become of these calls of one principal, in the order of the log."""
        principal, now = told[0].call.principal, tx.now()
        first = await tx.events.reserve(principal, len(told))
        happened = [
            Happened(event_of(name, each.call, event_id=self._ids.event(), seq=seq, now=now), each.call, each.result)
            for seq, each in enumerate(told, first)
        ]
        await tx.events.insert([each.event for each in happened])
        await self._fan_out.live(tx, happened)
        tx.ring(*(changed(each.call.id) for each in told), appended(principal))

    async def _publish(self, tx: Transaction, event: Event) -> None:
        """What happened to no call."""
        await tx.events.insert([event])
        await self._fan_out.live(tx, [Happened(event)])
        tx.ring(appended(event.principal))


async def listeners(tx: Transaction, event: Event) -> list[Webhook]:
    """The webhooks that hear this event: the store proposes, the domain decides."""
    (candidates,) = await tx.webhooks.candidates([event], catching_up=True)
    return [webhook for webhook in candidates if hears(webhook, event, now=tx.now())]


def _principal(told: Told) -> Principal:
    return told.call.principal
