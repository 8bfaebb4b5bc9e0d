"""The verifier: sends verification challenges to the URLs of new webhooks.

    challenge due ──lease, within the limits──▶ POST {"type": "verification", "challenge": nonce}, signed
                                                  │ the response has the same challenge ─────────────▶ proven
                                                  │ any other response, a published list covers it ──▶ proven
                                                  └ else: the webhook's last_error gets the category; retry on the schedule

A nonce exists only for its one request, so it is short-lived and cannot be used twice. A leased challenge becomes due again
after `CHALLENGE_LEASE_SECONDS`, when the process that sent it must be dead. The rules are in `verification`.
"""

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from ringback.domain.clock import Clock, seconds
from ringback.domain.clock_confirmation import is_of_wrong_clock
from ringback.domain.delivery import AttemptResult
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ids import IdGenerator, WebhookId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.retry import RETRY_SCHEDULES, RetryProfile, retry_delay_seconds
from ringback.domain.signals import Waiter
from ringback.domain.verification import (
    CHALLENGE_PLANNED_TOPIC,
    Challenge,
    challenge_ended_topic,
)
from ringback.domain.webhook import Webhook, WebhookState, signing_secrets
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier.challenge_sender import ChallengeSender, OutgoingChallenge
from ringback.notifier.http.sender import HttpRequester
from ringback.notifier.http.target import TargetPolicy
from ringback.notifier.verification import accept_proof, challenge_delay_seconds, is_proven
from ringback.signing.ed25519 import SigningKey
from ringback.waits import notify_when_set

log = logging.getLogger(__name__)

CHALLENGES_IN_FLIGHT_MAX: Final = 16
"""A receiver that hangs occupies one of these for `CHALLENGE_TIMEOUT_SECONDS`."""
CHALLENGE_LEASE_SECONDS: Final = 15.0
"""A live process is done earlier: the challenge and the request for the published list take at most 5 s each."""
SAME_URL_DELAY_SECONDS: Final = 1.0
"""Other webhooks at the same URL wait this long for the proof of the first: a working receiver responds in this time."""
POLL_SECONDS: Final = 5.0
"""The longest delay after a missed notification."""
CHALLENGE_SCHEDULE: Final = RETRY_SCHEDULES[RetryProfile.MINUTES]
"""Four more attempts within a quarter of an hour; later the owner requests verification again."""


@dataclass(frozen=True, slots=True)
class _LeasedChallenge:
    challenge: Challenge
    webhook: Webhook


@dataclass(frozen=True, slots=True)
class _DueChallenges:
    leased: Sequence[_LeasedChallenge]
    proven: Sequence[Challenge]
    """Challenges whose URL was proven meanwhile."""
    due_count: int
    """Includes challenges that were proven or became obsolete meanwhile, or that wait for a rate limit."""
    next_due_at: datetime | None = None
    """When the next challenge is due. Read only if none is."""


class Verifier:
    name = "verifier"

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        ids: IdGenerator,
        requester: HttpRequester,
        policy: TargetPolicy,
        random_fraction: Callable[[], float],
        signing_keys: Sequence[SigningKey] = (),
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._store = store
        self._poll_seconds = poll_seconds
        self._clock = clock
        self._ids = ids
        self._random_fraction = random_fraction
        self._sender = ChallengeSender(
            clock=clock, ids=ids, requester=requester, policy=policy, signing_keys=signing_keys
        )
        self._in_flight = 0
        self._accepting: set[WebhookId] = set()
        """Webhooks that an earlier proof activates now. They are due again while their units wait."""
        self._waiter: Waiter | None = None
        """Of `run`."""

    async def run(self, stop: asyncio.Event) -> None:
        """Send challenges until `stop` is set, then wait for those in flight."""
        async with asyncio.TaskGroup() as group:
            with self._store.signals.listen(CHALLENGE_PLANNED_TOPIC) as self._waiter:
                async with notify_when_set(self._waiter, stop):
                    while not stop.is_set():
                        due = await self._lease_due_or_nothing()
                        self._start_due(group, due)
                        if not due.due_count:
                            await self._wait_for_work(self._waiter, due.next_due_at)

    async def run_once(self) -> int:
        """Send the due challenges and record their results; returns the number of challenges."""
        due = await self._lease_due_or_nothing()
        async with asyncio.TaskGroup() as group:
            self._start_due(group, due)
        return len(due.leased)

    # -- leasing --

    async def _lease_due_or_nothing(self) -> _DueChallenges:
        if self._in_flight >= CHALLENGES_IN_FLIGHT_MAX:
            return _DueChallenges([], [], due_count=0)
        try:
            return await self._store.write(self._lease_due)
        except StoreUnavailable:
            log.debug("challenges.lease_failed")
            return _DueChallenges([], [], due_count=0)

    async def _accept_earlier_proof(self, challenge: Challenge) -> None:
        """In a unit of its own, which locks the webhook before its challenge, as all other units do."""

        async def accept(tx: Transaction) -> None:
            webhook = await tx.webhooks.get(challenge.webhook_id)
            if webhook is not None and await is_proven(tx, webhook):
                await accept_proof(tx, webhook, url=challenge.url)

        try:
            await self._store.write_for(challenge.principal, accept)
        except StoreUnavailable:
            log.debug("challenge.not_recorded")  # it is due again soon
        except Exception:  # a bug with one webhook must not affect other challenges
            log.exception("challenge.failed", extra={"webhook_id": challenge.webhook_id})
        finally:
            self._accepting.discard(challenge.webhook_id)

    async def _wait_for_work(self, waiter: Waiter, next_due_at: datetime | None) -> None:
        due_in = math.inf if next_due_at is None else (next_due_at - self._clock.now()).total_seconds()
        await waiter.wait(min(max(due_in, 0.0), self._poll_seconds))

    async def _lease_due(self, tx: Transaction) -> _DueChallenges:
        leased: list[_LeasedChallenge] = []
        proven: list[Challenge] = []
        limit = CHALLENGES_IN_FLIGHT_MAX - self._in_flight
        due = await tx.challenges.list_due(now=tx.now(), limit=limit)
        if not due:
            next_due_at = await tx.challenges.next_due_at()
            if next_due_at is None or not is_of_wrong_clock(next_due_at, now=tx.now()):
                return _DueChallenges([], [], due_count=0, next_due_at=next_due_at)
            due = await tx.challenges.list_due(now=next_due_at, limit=limit)  # planned by a clock that was far ahead
        # Not locked: the challenges are, and other units lock a webhook before its challenge.
        found = await tx.webhooks.get_many({challenge.webhook_id for challenge in due})
        webhooks = {webhook.id: webhook for webhook in found}
        leased_urls: set[tuple[Principal, str]] = set()
        for challenge in due:
            webhook = webhooks.get(challenge.webhook_id)
            if webhook is not None and webhook.has_unreadable_secrets and await tx.sealing_keys.lacks_any():
                later = tx.now() + seconds(SAME_URL_DELAY_SECONDS)  # another node has the key
                await tx.challenges.save(replace(challenge, due_at=later, token=None))
            elif webhook is None or webhook.has_unreadable_secrets or webhook.url != challenge.url:
                await tx.challenges.remove(challenge.webhook_id)
            elif webhook.state is WebhookState.PENDING_VERIFICATION and await is_proven(tx, webhook):
                later = tx.now() + seconds(SAME_URL_DELAY_SECONDS)
                await tx.challenges.save(replace(challenge, due_at=later, token=None))
                proven.append(challenge)
            elif delay := await challenge_delay_seconds(tx, challenge):
                await tx.challenges.save(replace(challenge, due_at=tx.now() + seconds(delay), token=None))
            elif (challenge.principal, challenge.url) in leased_urls:
                later = tx.now() + seconds(SAME_URL_DELAY_SECONDS)
                await tx.challenges.save(replace(challenge, due_at=later, token=None))
            else:
                leased_urls.add((challenge.principal, challenge.url))
                leased.append(_LeasedChallenge(await self._lease_challenge(tx, challenge), webhook))
        return _DueChallenges(leased, proven, due_count=len(due))

    async def _lease_challenge(self, tx: Transaction, challenge: Challenge) -> Challenge:
        leased = replace(
            challenge,
            attempts=challenge.attempts + 1,
            due_at=tx.now() + seconds(CHALLENGE_LEASE_SECONDS),
            token=self._ids.new_lease_token(),
        )
        await tx.challenges.save(leased)
        await tx.challenges.record_sent(leased, now=tx.now())
        return leased

    # -- sending --

    def _start_due(self, group: asyncio.TaskGroup, due: _DueChallenges) -> None:
        """Beside each other: a webhook whose row stays locked delays no challenge of another."""
        for leased in due.leased:
            self._start_task(group, self._run_challenge(leased))
        for challenge in due.proven:
            if challenge.webhook_id not in self._accepting:
                self._accepting.add(challenge.webhook_id)
                self._start_task(group, self._accept_earlier_proof(challenge))

    def _start_task(self, group: asyncio.TaskGroup, work: Coroutine[Any, Any, None]) -> None:
        group.create_task(work).add_done_callback(self._end_challenge)
        self._in_flight += 1

    def _end_challenge(self, _challenge: asyncio.Task[None]) -> None:
        """A callback, because a task that is cancelled before its first step runs no `finally`."""
        self._in_flight -= 1
        if self._waiter is not None:
            self._waiter.notify()

    async def _run_challenge(self, leased: _LeasedChallenge) -> None:
        try:
            failure = await self._send_challenge(leased)
            await self._store.write_for(
                leased.challenge.principal, lambda tx: self._record_challenge(tx, leased.challenge, failure)
            )
        except StoreUnavailable:
            log.warning("challenge.not_recorded", extra={"webhook_id": leased.webhook.id})
        except Exception:  # a bug in the sender, which may be the user's own, must not affect other challenges
            log.exception("challenge.failed", extra={"webhook_id": leased.webhook.id})

    async def _send_challenge(self, leased: _LeasedChallenge) -> AttemptResult | None:
        """Why the URL is not proven; None if it is proven."""
        challenge = leased.challenge
        return await self._sender.send_challenge(
            OutgoingChallenge(
                webhook_id=leased.webhook.id,
                principal=challenge.principal,
                url=challenge.url,
                secrets=signing_secrets(leased.webhook, now=self._clock.now()),
                headers=leased.webhook.headers,
                message_suffix=(challenge.token or "").partition("_")[2],
            )
        )

    async def _record_challenge(self, tx: Transaction, challenge: Challenge, failure: AttemptResult | None) -> None:
        tx.notify(challenge_ended_topic(challenge.webhook_id))
        webhook = await tx.webhooks.get(challenge.webhook_id)
        if webhook is None:
            return
        log.info(
            "webhook.challenged",
            extra={
                "webhook_id": webhook.id,
                "principal": webhook.principal,
                "attempt": challenge.attempts,
                "category": str(failure.category) if failure else "proven",
            },
        )
        if failure is None:
            await tx.sent_challenges.record_answered(challenge.origin, challenge.principal)
            await accept_proof(tx, webhook, url=challenge.url)
            return
        latest = await tx.challenges.get(webhook.id)
        if latest is None or latest.token != challenge.token:
            return  # the owner requested a new challenge, or the URL has changed
        failed = replace(webhook, last_error=str(failure.category), last_error_detail=failure.error_detail)
        await tx.webhooks.update(failed, WebhookPart.HEALTH)
        delay = retry_delay_seconds(
            CHALLENGE_SCHEDULE,
            attempts=challenge.attempts,
            random_fraction=self._random_fraction(),
            retry_after_seconds=None,
        )
        if delay is None or webhook.state is not WebhookState.PENDING_VERIFICATION:
            await tx.challenges.remove(webhook.id)
        else:
            await tx.challenges.save(replace(challenge, token=None, due_at=tx.now() + seconds(delay)))
