"""Who may be sent to now. A lane is what waits for one webhook; this book keeps how many attempts each lane may have in flight.

    share of a lane = the least of    what is free overall
                                      32 - in flight of the same (principal, origin)
                                      128 - in flight of the same origin
                                      1 - in flight, if the receiver is on trial: new, failing, or probed after a pause
                                      what its rate leaves
                                      0, while its breaker or its origin's is open

It is the memory of one process and nothing but that: breakers are kept in the store, and are learned from it.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, TypeVar

from ringback.domain.breaker import CLOSED, Breaker, BreakerState
from ringback.domain.clock import seconds
from ringback.domain.health import trusted
from ringback.domain.ids import WebhookId
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook, WebhookState
from ringback.notifier.pace import Pace

Key = TypeVar("Key")

RECHECK_SECONDS: Final = 10.0
"""How long a lane without a share is passed over for what was known of it: its owner may have changed it meanwhile."""
IDLE_SECONDS: Final = 1.0
"""How long one is passed over of which nothing could be leased, because all of it stands behind what is not due yet."""

SENDABLE: Final = frozenset({WebhookState.ACTIVE, WebhookState.SUSPENDED})


class Receiver(NamedTuple):
    """Whose callbacks, and where they go."""

    principal: Principal
    origin: str


class Slot(NamedTuple):
    """One attempt in flight."""

    webhook_id: WebhookId
    receiver: Receiver


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneLimits:
    in_flight_max: int = 2048
    """Twice the thousand receivers that may hang at once, each with the one attempt that it gets; a socket each."""
    per_receiver_max: int = 32
    """For one principal at one origin, so that nobody's slow receiver takes the slots of the others."""
    per_origin_max: int = 128
    """For all principals together: no receiver is flooded because many use it."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    webhook: Webhook
    origin: str
    known_until: datetime
    idle: bool


class Lanes:
    def __init__(self, limits: LaneLimits) -> None:
        self._limits = limits
        self._of_webhook: Counter[WebhookId] = Counter()
        self._of_receiver: Counter[Receiver] = Counter()
        self._of_origin: Counter[str] = Counter()
        self._in_flight = 0
        self._origins: dict[str, Breaker] = {}
        self._pace = Pace()
        self._waiting: dict[WebhookId, _Waiting] = {}
        self._waiting_at: Counter[str] = Counter()

    @property
    def in_flight(self) -> int:
        return self._in_flight

    def free(self) -> int:
        return self._limits.in_flight_max - self._in_flight

    # -- slots --

    def share(self, webhook: Webhook, origin: str, *, now: datetime) -> int:
        """How many more attempts the lane may have in flight."""
        if webhook.state not in SENDABLE or self.paused(webhook, origin, now=now):
            return 0
        room = min(
            self.free(),
            self._limits.per_receiver_max - self._of_receiver[Receiver(webhook.principal, origin)],
            self._limits.per_origin_max - self._of_origin[origin],
        )
        if not trusted(webhook):
            room = min(room, 1 - self._of_webhook[webhook.id])
        if origin in self._origins and self._origins[origin].paused_until is not None:
            room = min(room, 1 - self._of_origin[origin])
        if webhook.rate_per_second is not None:
            room = min(room, self._pace.allowed(webhook.id, webhook.rate_per_second, now=now))
        return max(0, room)

    def enter(self, webhook: Webhook, origin: str, *, now: datetime) -> Slot:
        slot = Slot(webhook.id, Receiver(webhook.principal, origin))
        self._count(slot, 1)
        if webhook.rate_per_second is not None:
            self._pace.spend(webhook.id, webhook.rate_per_second, now=now)
        return slot

    def leave(self, slot: Slot) -> bool:
        """Give the slot back; whether somebody may be waiting for it."""
        was_full = self.free() <= 0
        self._count(slot, -1)
        waiting = self._waiting.get(slot.webhook_id)
        if waiting is not None and waiting.idle:
            self.drained(slot.webhook_id)  # what was out may have been what the rest of the lane stood behind
        return waiting is not None or slot.receiver.origin in self._waiting_at or (was_full and bool(self._waiting))

    def undo(self, webhook: Webhook, slot: Slot) -> None:
        """The attempt is not made, because the unit of work that it was entered in was undone."""
        self.leave(slot)
        if webhook.rate_per_second is not None:
            self._pace.refund(webhook.id, webhook.rate_per_second)

    # -- pauses --

    def learn(self, breakers: Mapping[str, Breaker]) -> None:
        """What the store knows of these origins now."""
        for origin, breaker in breakers.items():
            if breaker == CLOSED:
                self._origins.pop(origin, None)
            else:
                self._origins[origin] = breaker

    def suspects(self, origin: str) -> bool:
        """Whether the origin has failed and has not been reached since."""
        return origin in self._origins

    def paused(self, webhook: Webhook, origin: str, *, now: datetime) -> bool:
        return BreakerState.OPEN in (webhook.breaker.state(now), self._origins.get(origin, CLOSED).state(now))

    # -- lanes that have something due and no share --

    def wait(self, webhook: Webhook, origin: str, *, now: datetime, idle: bool = False) -> None:
        self.drained(webhook.id)
        known_until = now + seconds(IDLE_SECONDS if idle else RECHECK_SECONDS)
        self._waiting[webhook.id] = _Waiting(webhook, origin, known_until, idle)
        self._waiting_at[origin] += 1

    def drained(self, webhook_id: WebhookId) -> None:
        if (waiting := self._waiting.pop(webhook_id, None)) is not None:
            _change(self._waiting_at, waiting.origin, -1)

    def waits(self, webhook_id: WebhookId) -> bool:
        """Whether older deliveries of this lane stand in line."""
        return webhook_id in self._waiting

    def without_share(self, *, now: datetime) -> set[WebhookId]:
        """Lanes that need not be looked at: they have no share yet."""
        for webhook_id, waiting in list(self._waiting.items()):
            if now >= waiting.known_until:
                self.drained(webhook_id)
        return {
            webhook_id
            for webhook_id, waiting in self._waiting.items()
            if waiting.idle or self.share(waiting.webhook, waiting.origin, now=now) == 0
        }

    def _count(self, slot: Slot, change: int) -> None:
        self._in_flight += change
        _change(self._of_webhook, slot.webhook_id, change)
        _change(self._of_receiver, slot.receiver, change)
        _change(self._of_origin, slot.receiver.origin, change)


def _change(counter: Counter[Key], key: Key, change: int) -> None:
    counter[key] += change
    if not counter[key]:
        del counter[key]
