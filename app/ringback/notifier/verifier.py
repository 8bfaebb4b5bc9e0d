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
from ringback.domain.delivery import Answer, Category
from ringback.domain.errors import InvalidCallbackUrl, StoreUnavailable
from ringback.domain.health import RELEASE_STEP
from ringback.domain.ids import Ids
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.retry import LADDERS, Profile, delay_seconds
from ringback.domain.signals import DUE, Bell
from ringback.domain.verification import (
    CHALLENGES,
    PER_ORIGIN_MAX,
    PER_PRINCIPAL_MAX,
    PROOF_SECONDS,
    Challenge,
    challenged,
    seconds_until_room,
)
from ringback.domain.webhook import Webhook, WebhookState, signing_secrets
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier.consent import PublishedReceivers, object_in
from ringback.notifier.envelopes import verification
from ringback.notifier.headers import callback_headers
from ringback.notifier.sender import Asker
from ringback.notifier.target_guard import TargetPolicy, parse_target
from ringback.signing.ed25519 import SigningKey
from ringback.waits import first_of

log = logging.getLogger(__name__)

CHALLENGE_SECONDS: Final = 5.0
"""For one challenge: somebody waits for the registration to be answered (and MCP events' attempts have as long, §8)."""
NONCE_BYTES: Final = 32
AT_ONCE: Final = 16
"""Challenges in flight. A receiver that hangs holds one for `CHALLENGE_SECONDS`."""
LEASE_SECONDS: Final = 15.0
"""After that whoever has a challenge is dead: it ends after a challenge and a look at the published list, 5 s each."""
SAME_URL_SECONDS: Final = 1.0
"""How long further webhooks wait for the proof of one at the same URL: a receiver that is there gives it within that time."""
POLL_SECONDS: Final = 5.0
"""How long a missed ring can cost."""
LADDER: Final = LADDERS[Profile.MINUTES]
"""Four more attempts within a quarter of an hour; after that the owner asks again when the receiver is ready."""


@dataclass(frozen=True, slots=True)
class _Taken:
    challenge: Challenge
    webhook: Webhook


@dataclass(frozen=True, slots=True)
class _Due:
    taken: Sequence[_Taken]
    found: int
    """The others were proven meanwhile, are not wanted any more, or have to wait for their limits."""


class Verifier:
    name = "verifier"

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        ids: Ids,
        asker: Asker,
        policy: TargetPolicy,
        chance: Callable[[], float],
        signing_keys: Sequence[SigningKey] = (),
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._asker = asker
        self._policy = policy
        self._chance = chance
        self._keys = signing_keys
        self._published = PublishedReceivers(asker, clock=clock, policy=policy)
        self._in_flight = 0
        self._room = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Ask until told to stop; then let what is out come to its end."""
        async with asyncio.TaskGroup() as group:
            with self._store.signals.listen(CHALLENGES) as bell:
                while not stop.is_set():
                    due = await self._take_or_nothing()
                    for taken in due.taken:
                        group.create_task(self._verify(taken))
                    if not due.found:
                        await self._idle(bell, stop)

    async def run_once(self) -> int:
        """Take what is due and bring it to an end; how many challenges that were."""
        due = await self._take_or_nothing()
        async with asyncio.TaskGroup() as group:
            for taken in due.taken:
                group.create_task(self._verify(taken))
        return len(due.taken)

    # -- taking --

    async def _take_or_nothing(self) -> _Due:
        self._room.clear()
        if self._in_flight >= AT_ONCE:
            return _Due([], found=0)
        try:
            due = await self._store.write(self._take)
        except StoreUnavailable:
            log.warning("challenges.take_failed")
            return _Due([], found=0)
        self._in_flight += len(due.taken)
        return due

    async def _idle(self, bell: Bell, stop: asyncio.Event) -> None:
        async def next_due(tx: Transaction) -> float:
            due = await tx.challenges.next_due()
            return POLL_SECONDS if due is None else (due - tx.now()).total_seconds()

        try:
            due_in = await self._store.read(next_due)
        except StoreUnavailable:
            due_in = POLL_SECONDS
        # What is due and was not taken waits for room, which rings by itself.
        wait = due_in if 0 < due_in < POLL_SECONDS else POLL_SECONDS
        await first_of(bell.wait(wait), self._room.wait(), stop.wait())

    async def _take(self, tx: Transaction) -> _Due:
        taken: list[_Taken] = []
        due = await tx.challenges.due(now=tx.now(), limit=AT_ONCE - self._in_flight)
        asked: set[tuple[Principal, str]] = set()
        for challenge in due:
            webhook = await tx.webhooks.get(challenge.webhook_id)
            if webhook is None or webhook.unreadable or webhook.url != challenge.url:
                await tx.challenges.drop(challenge.webhook_id)
            elif webhook.state is WebhookState.PENDING_VERIFICATION and await is_proven(tx, webhook):
                await accept(tx, webhook, url=challenge.url)
            elif wait := await seconds_until_allowed(tx, challenge):
                await tx.challenges.put(replace(challenge, due_at=tx.now() + seconds(wait), token=None))
            elif (challenge.principal, challenge.url) in asked:
                later = tx.now() + seconds(SAME_URL_SECONDS)
                await tx.challenges.put(replace(challenge, due_at=later, token=None))
            else:
                asked.add((challenge.principal, challenge.url))
                taken.append(_Taken(await self._lease(tx, challenge), webhook))
        return _Due(taken, found=len(due))

    async def _lease(self, tx: Transaction, challenge: Challenge) -> Challenge:
        leased = replace(
            challenge,
            attempts=challenge.attempts + 1,
            due_at=tx.now() + seconds(LEASE_SECONDS),
            token=self._ids.lease(),
        )
        await tx.challenges.put(leased)
        await tx.challenges.note(leased, now=tx.now())
        return leased

    # -- asking --

    async def _verify(self, taken: _Taken) -> None:
        try:
            refusal = await self._challenge(taken)
            await self._store.write(lambda tx: self._settle(tx, taken.challenge, refusal))
        except StoreUnavailable:
            log.warning("challenge.not_settled", extra={"webhook_id": taken.webhook.id})
        except Exception:  # the boundary between a sender, which may be a user's own, and everybody else's challenges
            log.exception("challenge.failed", extra={"webhook_id": taken.webhook.id})
        finally:
            self._in_flight -= 1
            self._room.set()

    async def _challenge(self, taken: _Taken) -> Category | None:
        """Why it is not proven; None when it is."""
        try:
            target = parse_target(taken.challenge.url, self._policy)
        except InvalidCallbackUrl:  # the operator's policy has become stricter since
            return Category.CONNECTION_REFUSED
        nonce = urlsafe_b64encode(self._ids.random(NONCE_BYTES)).decode()
        body = verification(nonce)
        headers = callback_headers(
            webhook_id=taken.webhook.id,
            message_id=f"msg_verification_{(taken.challenge.token or '').partition('_')[2]}",
            body=body,
            secrets=signing_secrets(taken.webhook, now=self._clock.now()),
            keys=self._keys,
            now=self._clock.wall(),
        )
        principal = taken.challenge.principal
        answer, told = await self._asker.ask(
            "POST", target, headers, body, principal=principal, deadline_seconds=CHALLENGE_SECONDS
        )
        if answer.category is Category.DELIVERED and echoes(told, nonce):
            return None
        if answer.status_code is not None and await self._published.list_it(target, principal):
            return None
        return _refusal(answer)

    async def _settle(self, tx: Transaction, challenge: Challenge, refusal: Category | None) -> None:
        tx.ring(challenged(challenge.webhook_id))
        webhook = await tx.webhooks.get(challenge.webhook_id)
        if webhook is None:
            return
        log.info(
            "webhook.challenged",
            extra={"webhook_id": webhook.id, "attempt": challenge.attempts, "category": refusal or "proven"},
        )
        if refusal is None:
            await accept(tx, webhook, url=challenge.url)
            return
        latest = await tx.challenges.get(webhook.id)
        if latest is None or latest.token != challenge.token:
            return  # it was asked for anew, or its URL has changed
        await tx.webhooks.update(replace(webhook, last_error=str(refusal)), WebhookPart.HEALTH)
        delay = delay_seconds(LADDER, attempts=challenge.attempts, chance=self._chance(), retry_after_seconds=None)
        if delay is None or webhook.state is not WebhookState.PENDING_VERIFICATION:
            await tx.challenges.drop(webhook.id)
        else:
            await tx.challenges.put(replace(challenge, token=None, due_at=tx.now() + seconds(delay)))


def echoes(answer: bytes, nonce: str) -> bool:
    """Whether the answer is JSON with this very challenge; compared in constant time."""
    told = object_in(answer).get("challenge")
    return isinstance(told, str) and hmac.compare_digest(told.encode(), nonce.encode())


def _refusal(answer: Answer) -> Category:
    """An answer that is no refusal to serve is a challenge that was not met; a redirect is one, too: it is not followed."""
    if answer.category in {Category.DELIVERED, Category.HTTP_3XX}:
        return Category.CHALLENGE_FAILED
    return answer.category


# -- the same for whoever registers ----------------------------------------------------------------------------------------


async def is_proven(tx: Transaction, webhook: Webhook) -> bool:
    """Whether this principal's callbacks were wanted at this URL not long ago."""
    proven_at = await tx.proofs.proven_at(webhook.principal, webhook.url)
    return proven_at is not None and tx.now() - proven_at < seconds(PROOF_SECONDS)


async def seconds_until_allowed(tx: Transaction, challenge: Challenge) -> float:
    """How long the origin, or the principal, may not be troubled with another challenge; 0 when it may."""
    now = tx.now()
    return max(
        seconds_until_room(await tx.challenges.asked(origin=challenge.origin, now=now), PER_ORIGIN_MAX, now=now),
        seconds_until_room(
            await tx.challenges.asked(principal=challenge.principal, now=now), PER_PRINCIPAL_MAX, now=now
        ),
    )


async def accept(tx: Transaction, webhook: Webhook, *, url: str) -> Webhook:
    """Write down that the URL has proven itself; if the webhook still waits for that, it is active and its held go out."""
    await tx.proofs.save(webhook.principal, url, now=tx.now())
    if webhook.url != url:
        return webhook  # its new one has a challenge of its own
    await tx.challenges.drop(webhook.id)
    tx.ring(challenged(webhook.id))
    if webhook.state is not WebhookState.PENDING_VERIFICATION:
        return webhook
    active = replace(webhook, state=WebhookState.ACTIVE, last_error=None, updated_at=tx.now())
    await tx.webhooks.update(active, WebhookPart.STATE, WebhookPart.HEALTH)
    await tx.delivery_lanes.release(active.id, now=tx.now(), limit=RELEASE_STEP)
    tx.ring(DUE)
    return active
