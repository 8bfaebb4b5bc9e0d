"""The verifier: asks the URLs of new webhooks for the proof that they want callbacks.

    planned, due ──take, within the limits──▶ POST {"type": "verification", "challenge": nonce}, signed
                                                 │ answered with the same challenge ─────────▶ proven
                                                 │ answered otherwise ─ published list covers it ▶ proven
                                                 └ else: the category is told to the owner, and the ladder goes on

A nonce lives as long as its one request, and nobody else ever sees it: that makes it single use and short-lived. The row of a
challenge that is out comes due again when whoever sent it must be dead.
"""

import asyncio
import hmac
import logging
from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from ringback.domain.clock import Clock, seconds
from ringback.domain.delivery import AttemptCategory, AttemptResult
from ringback.domain.errors import InvalidCallbackUrl, StoreUnavailable
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.retry import RETRY_SCHEDULES, RetryProfile, retry_delay_seconds
from ringback.domain.signals import DELIVERY_DUE_TOPIC, Waiter
from ringback.domain.verification import (
    CHALLENGE_PLANNED_TOPIC,
    CHALLENGES_PER_ORIGIN_MAX,
    CHALLENGES_PER_PRINCIPAL_MAX,
    PROOF_VALID_SECONDS,
    Challenge,
    challenge_ended_topic,
    seconds_until_below_limit,
)
from ringback.domain.webhook import Webhook, WebhookState, signing_secrets
from ringback.domain.webhook_health import RELEASE_BATCH_SIZE
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier.http.sender import HttpRequester
from ringback.notifier.http.target import TargetPolicy, parse_target
from ringback.notifier.payload import build_callback_headers, build_verification_body
from ringback.notifier.verification import PublishedReceiverLists, parse_json_object
from ringback.signing.ed25519 import SigningKey
from ringback.waits import wait_first

log = logging.getLogger(__name__)

CHALLENGE_TIMEOUT_SECONDS: Final = 5.0
"""For one challenge: somebody waits for the registration to be answered (and MCP events' attempts have as long, §8)."""
NONCE_BYTES: Final = 32
CHALLENGES_IN_FLIGHT_MAX: Final = 16
"""Challenges in flight. A receiver that hangs holds one for `CHALLENGE_SECONDS`."""
CHALLENGE_LEASE_SECONDS: Final = 15.0
"""After that whoever has a challenge is dead: it ends after a challenge and a look at the published list, 5 s each."""
SAME_URL_DELAY_SECONDS: Final = 1.0
"""How long further webhooks wait for the proof of one at the same URL: a receiver that is there gives it within that time."""
POLL_SECONDS: Final = 5.0
"""How long a missed ring can cost."""
CHALLENGE_SCHEDULE: Final = RETRY_SCHEDULES[RetryProfile.MINUTES]
"""Four more attempts within a quarter of an hour; after that the owner asks again when the receiver is ready."""


@dataclass(frozen=True, slots=True)
class _LeasedChallenge:
    challenge: Challenge
    webhook: Webhook


@dataclass(frozen=True, slots=True)
class _DueChallenges:
    leased: Sequence[_LeasedChallenge]
    due_count: int
    """The others were proven meanwhile, are not wanted any more, or have to wait for their limits."""


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
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._requester = requester
        self._policy = policy
        self._random_fraction = random_fraction
        self._signing_keys = signing_keys
        self._receiver_lists = PublishedReceiverLists(requester, clock=clock, policy=policy)
        self._in_flight = 0
        self._capacity_freed = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Ask until told to stop; then let what is out come to its end."""
        async with asyncio.TaskGroup() as group:
            with self._store.signals.listen(CHALLENGE_PLANNED_TOPIC) as waiter:
                while not stop.is_set():
                    due = await self._lease_due_or_nothing()
                    for leased in due.leased:
                        group.create_task(self._run_challenge(leased))
                    if not due.due_count:
                        await self._wait_for_work(waiter, stop)

    async def run_once(self) -> int:
        """Take what is due and bring it to an end; how many challenges that were."""
        due = await self._lease_due_or_nothing()
        async with asyncio.TaskGroup() as group:
            for leased in due.leased:
                group.create_task(self._run_challenge(leased))
        return len(due.leased)

    # -- taking --

    async def _lease_due_or_nothing(self) -> _DueChallenges:
        self._capacity_freed.clear()
        if self._in_flight >= CHALLENGES_IN_FLIGHT_MAX:
            return _DueChallenges([], due_count=0)
        try:
            due = await self._store.write(self._lease_due)
        except StoreUnavailable:
            log.warning("challenges.take_failed")
            return _DueChallenges([], due_count=0)
        self._in_flight += len(due.leased)
        return due

    async def _wait_for_work(self, waiter: Waiter, stop: asyncio.Event) -> None:
        async def next_due(tx: Transaction) -> float:
            due = await tx.challenges.next_due_at()
            return POLL_SECONDS if due is None else (due - tx.now()).total_seconds()

        try:
            due_in = await self._store.read(next_due)
        except StoreUnavailable:
            due_in = POLL_SECONDS
        # What is due and was not taken waits for room, which rings by itself.
        wait = due_in if 0 < due_in < POLL_SECONDS else POLL_SECONDS
        await wait_first(waiter.wait(wait), self._capacity_freed.wait(), stop.wait())

    async def _lease_due(self, tx: Transaction) -> _DueChallenges:
        leased: list[_LeasedChallenge] = []
        due = await tx.challenges.list_due(now=tx.now(), limit=CHALLENGES_IN_FLIGHT_MAX - self._in_flight)
        leased_urls: set[tuple[Principal, str]] = set()
        for challenge in due:
            webhook = await tx.webhooks.get(challenge.webhook_id)
            if webhook is None or webhook.has_unreadable_secrets or webhook.url != challenge.url:
                await tx.challenges.remove(challenge.webhook_id)
            elif webhook.state is WebhookState.PENDING_VERIFICATION and await is_proven(tx, webhook):
                await accept_proof(tx, webhook, url=challenge.url)
            elif delay := await challenge_delay_seconds(tx, challenge):
                await tx.challenges.save(replace(challenge, due_at=tx.now() + seconds(delay), token=None))
            elif (challenge.principal, challenge.url) in leased_urls:
                later = tx.now() + seconds(SAME_URL_DELAY_SECONDS)
                await tx.challenges.save(replace(challenge, due_at=later, token=None))
            else:
                leased_urls.add((challenge.principal, challenge.url))
                leased.append(_LeasedChallenge(await self._lease_challenge(tx, challenge), webhook))
        return _DueChallenges(leased, due_count=len(due))

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

    # -- asking --

    async def _run_challenge(self, leased: _LeasedChallenge) -> None:
        try:
            failure = await self._send_challenge(leased)
            await self._store.write(lambda tx: self._record_challenge(tx, leased.challenge, failure))
        except StoreUnavailable:
            log.warning("challenge.not_settled", extra={"webhook_id": leased.webhook.id})
        except Exception:  # the boundary between a sender, which may be a user's own, and everybody else's challenges
            log.exception("challenge.failed", extra={"webhook_id": leased.webhook.id})
        finally:
            self._in_flight -= 1
            self._capacity_freed.set()

    async def _send_challenge(self, leased: _LeasedChallenge) -> AttemptCategory | None:
        """Why it is not proven; None when it is."""
        try:
            target = parse_target(leased.challenge.url, self._policy)
        except InvalidCallbackUrl:  # the operator's policy has become stricter since
            return AttemptCategory.CONNECTION_REFUSED
        nonce = urlsafe_b64encode(self._ids.random_bytes(NONCE_BYTES)).decode()
        body = build_verification_body(nonce)
        headers = build_callback_headers(
            webhook_id=leased.webhook.id,
            message_id=f"msg_verification_{(leased.challenge.token or '').partition('_')[2]}",
            body=body,
            secrets=signing_secrets(leased.webhook, now=self._clock.now()),
            signing_keys=self._signing_keys,
            now=self._clock.wall_time(),
        )
        principal = leased.challenge.principal
        result, response_body = await self._requester.send_request(
            "POST", target, headers, body, principal=principal, deadline_seconds=CHALLENGE_TIMEOUT_SECONDS
        )
        if result.category is AttemptCategory.DELIVERED and echoes_nonce(response_body, nonce):
            return None
        if result.status_code is not None and await self._receiver_lists.lists_target(target, principal):
            return None
        return _failure_category(result)

    async def _record_challenge(self, tx: Transaction, challenge: Challenge, failure: AttemptCategory | None) -> None:
        tx.notify(challenge_ended_topic(challenge.webhook_id))
        webhook = await tx.webhooks.get(challenge.webhook_id)
        if webhook is None:
            return
        log.info(
            "webhook.challenged",
            extra={"webhook_id": webhook.id, "attempt": challenge.attempts, "category": failure or "proven"},
        )
        if failure is None:
            await accept_proof(tx, webhook, url=challenge.url)
            return
        latest = await tx.challenges.get(webhook.id)
        if latest is None or latest.token != challenge.token:
            return  # it was asked for anew, or its URL has changed
        await tx.webhooks.update(replace(webhook, last_error=str(failure)), WebhookPart.HEALTH)
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


def echoes_nonce(response_body: bytes, nonce: str) -> bool:
    """Whether the answer is JSON with this very challenge; compared in constant time."""
    challenge = parse_json_object(response_body).get("challenge")
    return isinstance(challenge, str) and hmac.compare_digest(challenge.encode(), nonce.encode())


def _failure_category(result: AttemptResult) -> AttemptCategory:
    """An answer that is no refusal to serve is a challenge that was not met; a redirect is one, too: it is not followed."""
    if result.category in {AttemptCategory.DELIVERED, AttemptCategory.HTTP_3XX}:
        return AttemptCategory.CHALLENGE_FAILED
    return result.category


# -- the same for whoever registers ----------------------------------------------------------------------------------------


async def is_proven(tx: Transaction, webhook: Webhook) -> bool:
    """Whether this principal's callbacks were wanted at this URL not long ago."""
    proven_at = await tx.proofs.get_proven_at(webhook.principal, webhook.url)
    return proven_at is not None and tx.now() - proven_at < seconds(PROOF_VALID_SECONDS)


async def challenge_delay_seconds(tx: Transaction, challenge: Challenge) -> float:
    """How long the origin, or the principal, may not be troubled with another challenge; 0 when it may."""
    now = tx.now()
    return max(
        seconds_until_below_limit(
            await tx.challenges.count_recent(origin=challenge.origin, now=now), CHALLENGES_PER_ORIGIN_MAX, now=now
        ),
        seconds_until_below_limit(
            await tx.challenges.count_recent(principal=challenge.principal, now=now),
            CHALLENGES_PER_PRINCIPAL_MAX,
            now=now,
        ),
    )


async def accept_proof(tx: Transaction, webhook: Webhook, *, url: str) -> Webhook:
    """Write down that the URL has proven itself; if the webhook still waits for that, it is active and its held go out."""
    await tx.proofs.save(webhook.principal, url, now=tx.now())
    if webhook.url != url:
        return webhook  # its new one has a challenge of its own
    await tx.challenges.remove(webhook.id)
    tx.notify(challenge_ended_topic(webhook.id))
    if webhook.state is not WebhookState.PENDING_VERIFICATION:
        return webhook
    active = replace(webhook, state=WebhookState.ACTIVE, last_error=None, updated_at=tx.now())
    await tx.webhooks.update(active, WebhookPart.STATE, WebhookPart.HEALTH)
    await tx.webhook_deliveries.release_held(active.id, now=tx.now(), limit=RELEASE_BATCH_SIZE)
    tx.notify(DELIVERY_DUE_TOPIC)
    return active
