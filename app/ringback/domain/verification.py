"""Verification of callback URLs: challenges, proofs, and their rate limits.

    registered ──▶ pending_verification ──challenge──▶ proven: active, held deliveries are released
                          ▲        │
                          └────────┘ not proven: repeated by a retry schedule or by the owner

Planned and running challenges are rows, so another process repeats the challenge of a process that died. A proof is stored for
one principal and one URL, so a second webhook with that URL needs no challenge.
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
"""How long a proof is valid for new webhooks, because names change hands. Existing webhooks stay verified."""
CHALLENGE_WINDOW_SECONDS: Final = float(MINUTE)
CHALLENGES_PER_ORIGIN_MAX: Final = 30
"""Challenges to one origin in `CHALLENGE_WINDOW_SECONDS`, over all principals: one in two seconds, which an uninvolved host can
bear. Those that the origin has answered do not count, because it takes part."""
CHALLENGES_PER_ORIGIN_AND_PRINCIPAL_MAX: Final = 5
"""The share of one principal in `CHALLENGES_PER_ORIGIN_MAX`: a sixth, so that it locks no other principal out of an origin."""
CHALLENGES_PER_PRINCIPAL_MAX: Final = 60
"""Challenges of one principal in `CHALLENGE_WINDOW_SECONDS` over all origins, so that no principal can scan hosts."""

CHALLENGE_PLANNED_TOPIC: Final = "challenges"
"""Topic: a challenge was planned."""


def challenge_ended_topic(webhook_id: WebhookId) -> str:
    """Topic: this webhook's challenge has ended."""
    return f"challenge:{webhook_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    """The challenge of one webhook's URL."""

    webhook_id: WebhookId
    principal: Principal
    url: str
    """The URL when the challenge was planned. A response of another URL proves nothing."""
    origin: str
    attempts: int = 0
    """Attempts begun, the running one included."""
    due_at: datetime
    """When the next attempt is due; during an attempt, when its holder counts as dead."""
    token: str | None = None
    """The token of the holder; None if no attempt runs."""

    @property
    def has_ended_attempt(self) -> bool:
        """Whether at least one attempt has ended and none is running."""
        return self.attempts > 0 and self.token is None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentChallenges:
    """Challenges of one origin or principal within `CHALLENGE_WINDOW_SECONDS`, and those that wait."""

    sent_count: int
    waiting_count: int
    """URLs whose first challenge is planned. Repeated challenges are not counted."""
    first_sent_at: datetime | None
    """When the oldest counted challenge was sent."""


def seconds_until_below_limit(recent: RecentChallenges, limit: int, *, now: datetime) -> float:
    """Seconds until another challenge is allowed; 0 if one is allowed now."""
    return 0.0 if recent.sent_count < limit else seconds_until_oldest_expires(recent, now=now)


def seconds_until_oldest_expires(recent: RecentChallenges, *, now: datetime) -> float:
    """Seconds until the oldest counted challenge leaves the window, at least 1.

    At most the window: a clock that was far ahead may have sent the challenge.
    """
    first_sent_at = min(now, recent.first_sent_at or now)
    return max(1.0, (first_sent_at + seconds(CHALLENGE_WINDOW_SECONDS) - now).total_seconds())


class ChallengeRows(Protocol):
    async def save(self, challenge: Challenge) -> None:
        """Save the challenge and replace the webhook's earlier one."""
        ...

    async def get(self, webhook_id: WebhookId) -> Challenge | None: ...

    async def list_due(self, *, now: datetime, limit: int) -> Sequence[Challenge]:
        """Due challenges, oldest first, including running ones whose holder counts as dead.

        Other units that list due challenges wait until the transaction ends, so that the limits of challenges are exact.
        """
        ...

    async def next_due_at(self) -> datetime | None: ...

    async def remove(self, webhook_id: WebhookId) -> None: ...

    async def count_recent(
        self, *, origin: str | None = None, principal: Principal | None = None, now: datetime
    ) -> RecentChallenges:
        """Count the challenges of one origin, of one principal, or of one principal to one origin.

        The records of an origin, as an origin alone and with a principal counts them, are those that it has not answered.
        """
        ...

    async def record_sent(self, challenge: Challenge, *, now: datetime) -> None:
        """Record an attempt for `count_recent`."""
        ...

    async def remove_sent(self, *, cutoff: datetime, limit: int) -> int:
        """Remove records from before `cutoff`, which no limit counts."""
        ...


class SentChallengeRows(Protocol):
    """The records that `ChallengeRows.count_recent` counts."""

    async def lock(self) -> None:
        """Other units that lock them, or list due challenges, wait until the transaction ends, so that the limits are exact."""
        ...

    async def record_answered(self, origin: str, principal: Principal) -> None:
        """Let one challenge of the principal to this origin count against the principal only: the origin has answered it."""
        ...


class ProofRows(Protocol):
    async def get_proven_at(self, principal: Principal, url: str) -> datetime | None: ...

    async def save(self, principal: Principal, url: str, *, now: datetime) -> None: ...

    async def remove(self, *, cutoff: datetime, limit: int) -> int: ...
