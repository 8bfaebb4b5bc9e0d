"""Proof that a callback URL wants its callbacks: what is known of it, and how often it may be asked for.

    registered ──▶ pending_verification ──challenge──▶ proven: active, what was held goes out
                          ▲        │
                          └────────┘ not proven: asked again by a ladder, or by its owner

A challenge that is planned, and one that is out, is a row: whoever dies with one in hand leaves it to be taken up again.
What was proven is kept for one principal and one URL, so a second webhook there asks nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from ringback.domain.clock import seconds
from ringback.domain.ids import WebhookId
from ringback.domain.principal import Principal
from ringback.domain.retry import DAY, MINUTE

PROOF_VALID_SECONDS: Final = 7.0 * DAY
"""How long a proof serves for further webhooks. Names change hands; the webhooks that are there stay as they are."""
CHALLENGE_WINDOW_SECONDS: Final = float(MINUTE)
CHALLENGES_PER_ORIGIN_MAX: Final = 10
"""Challenges in `RATE_SECONDS`, of all principals together: as many as one who never asked for them can bear."""
CHALLENGES_PER_PRINCIPAL_MAX: Final = 60
"""The same for one principal over all origins, so that nobody knocks at every door there is."""

CHALLENGE_PLANNED_TOPIC: Final = "challenges"
"""Topic: a challenge was planned."""


def challenge_ended_topic(webhook_id: WebhookId) -> str:
    """Topic: this webhook's challenge has ended."""
    return f"challenge:{webhook_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """What one webhook's URL is to prove."""

    webhook_id: WebhookId
    principal: Principal
    url: str
    """As it was when this was planned: what another URL answers proves nothing."""
    origin: str
    attempts: int = 0
    """Those that were begun, the one that is out included."""
    due_at: datetime
    """While it is out: when whoever took it counts as dead."""
    token: str | None = None
    """Of whoever has it; None while nobody has."""

    @property
    def has_ended_attempt(self) -> bool:
        """Whether at least one attempt is over, and none is out."""
        return self.attempts > 0 and self.token is None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentChallenges:
    """How often somebody was challenged within `RATE_SECONDS`, and how much more is to come."""

    sent_count: int
    waiting_count: int
    """URLs whose challenge is planned and was never sent: it will be as soon as it may. A repeated one has no such claim."""
    first_sent_at: datetime | None
    """When the first that still counts was sent."""


def seconds_until_below_limit(recent: RecentChallenges, limit: int, *, now: datetime) -> float:
    """How long nobody more may be challenged; 0 when there is room."""
    return 0.0 if recent.sent_count < limit else seconds_until_oldest_expires(recent, now=now)


def seconds_until_oldest_expires(recent: RecentChallenges, *, now: datetime) -> float:
    """When the first of those that count will count no more."""
    return max(1.0, ((recent.first_sent_at or now) + seconds(CHALLENGE_WINDOW_SECONDS) - now).total_seconds())


class ChallengeRows(Protocol):
    async def save(self, challenge: Challenge) -> None:
        """Write it, in the place of what the webhook has so far."""
        ...

    async def get(self, webhook_id: WebhookId) -> Challenge | None: ...

    async def list_due(self, *, now: datetime, limit: int) -> Sequence[Challenge]:
        """Those whose time has come, the oldest first; one that is out and whose holder is dead is among them."""
        ...

    async def next_due_at(self) -> datetime | None: ...

    async def remove(self, webhook_id: WebhookId) -> None: ...

    async def count_recent(
        self, *, origin: str | None = None, principal: Principal | None = None, now: datetime
    ) -> RecentChallenges:
        """Of one origin, or of one principal."""
        ...

    async def record_sent(self, challenge: Challenge, *, now: datetime) -> None:
        """That it is being sent: what `asked` counts."""
        ...

    async def remove_sent(self, *, cutoff: datetime, limit: int) -> int:
        """Remove notes that no limit counts any more."""
        ...


class ProofRows(Protocol):
    async def get_proven_at(self, principal: Principal, url: str) -> datetime | None: ...

    async def save(self, principal: Principal, url: str, *, now: datetime) -> None: ...

    async def remove(self, *, cutoff: datetime, limit: int) -> int: ...
