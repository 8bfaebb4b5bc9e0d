"""Webhooks: register, read, list, change, verify, test, give a new secret, remove."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum
from typing import Final

from ringback.domain.clock import Clock, seconds
from ringback.domain.cursor import decode_seq
from ringback.domain.delivery import Delivery
from ringback.domain.errors import (
    InvalidRequest,
    NotFound,
    QuotaExceeded,
    UnknownUpstream,
    WebhookNotActive,
    WebhookNotVerified,
)
from ringback.domain.event import EventName
from ringback.domain.health import RELEASE_STEP
from ringback.domain.ids import CallId, Ids, WebhookId, looks_like
from ringback.domain.ports import DUE, Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.retry import DAY, Profile
from ringback.domain.upstreams import Catalog
from ringback.domain.watches import URIS_MAX, WATCHES, check_watch
from ringback.domain.webhook import (
    DEFAULT_EVENTS,
    OLD_SECRETS_MAX,
    SWITCHES,
    Origin,
    Webhook,
    WebhookSecret,
    WebhookState,
    When,
    moved,
    rotated,
    switched,
)
from ringback.notifier.on_demand import OnDemand
from ringback.notifier.record import Recorder
from ringback.notifier.target_guard import TargetGuard
from ringback.services.lifecycle import Lifecycle
from ringback.services.quotas import QuotaKeeper
from ringback.services.verification import Verification
from ringback.signing import secrets as signing_secrets

SECRET_BYTES: Final = 32
CATCH_UP_EVENTS_MAX: Final = 10_000
"""As many deliveries as may be held for one webhook (design of the held queue); older events are there to be polled."""

OVERLAP_SECONDS_DEFAULT: Final = float(DAY)
"""A receiver is deployed anew within a day (and what implementations of MCP events use: mcp-events §8)."""
OVERLAP_SECONDS_MAX: Final = 7.0 * DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """What a client asks to be rung for."""

    url: str
    secret: str | None = field(default=None, repr=False)
    events: frozenset[EventName] = DEFAULT_EVENTS
    upstream: str | None = None
    resource_uri: str | None = None
    tool: str | None = None
    call_id: str | None = None
    client_session_id: str | None = None
    correlation_id: str | None = None
    match_correlation: bool = False
    retries: Profile = Profile.DAYS
    include_result: bool = False
    when: When = When.ALWAYS
    ordered: bool = False
    rate_per_second: float | None = None
    description: str | None = None
    cursor: str | None = None
    """Hear from this place in the event log on, instead of from now."""
    expires_in_seconds: float | None = None


class Unlimited(Enum):
    """What a rate is changed to when there is to be none."""

    UNLIMITED = "unlimited"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What may be changed of a webhook; None leaves a thing as it is."""

    url: str | None = None
    events: frozenset[EventName] | None = None
    description: str | None = None
    include_result: bool | None = None
    when: When | None = None
    retries: Profile | None = None
    rate_per_second: float | Unlimited | None = None
    state: WebhookState | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    webhook: Webhook
    secret: str | None = field(default=None, repr=False)
    """The signing secret if it was generated just now; shown this once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotated:
    webhook: Webhook
    secret: str | None = field(default=None, repr=False)
    """The new signing secret if it was generated just now; shown this once."""
    overlap_ends_at: datetime
    """Until then what signed before still signs, too."""


class Webhooks:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        ids: Ids,
        recorder: Recorder,
        on_demand: OnDemand,
        guard: TargetGuard,
        quotas: QuotaKeeper,
        lifecycle: Lifecycle,
        verification: Verification,
        catalog: Catalog,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._recorder = recorder
        self._on_demand = on_demand
        self._guard = guard
        self._quotas = quotas
        self._lifecycle = lifecycle
        self._verification = verification
        self._catalog = catalog

    async def register(self, caller: Caller, registration: Registration) -> Registered:
        """Register a callback URL; from the moment this returns, every event it hears is delivered to it.

        Where its URL has to be proven, what it hears is held until that is done. This waits for the first challenge, in bounds.
        """
        caller.require(Scope.WEBHOOKS)
        self._lifecycle.require_open()
        generated, webhook = await self._prepare(caller, registration, origin=Origin.REST)
        webhook = await self._store.write(lambda tx: self._insert(tx, webhook, registration.cursor))
        return Registered(webhook=await self._challenged(caller, webhook), secret=generated)

    async def prepare_callback(self, caller: Caller, registration: Registration) -> tuple[str | None, Webhook]:
        """A webhook for one call, checked but not stored: the call's own transaction does that."""
        return await self._prepare(caller, registration, origin=Origin.CALL)

    async def insert_callback(self, tx: Transaction, webhook: Webhook) -> None:
        """Store a webhook of a call. Nobody waits for its proof: the call begins, and what it tells is held."""
        await self._verification.insert(tx, webhook)

    async def get(self, caller: Caller, webhook_id: str) -> Webhook:
        caller.require(Scope.READ)
        return await self._store.read(lambda tx: own_webhook(tx, caller.principal, webhook_id))

    async def page(self, caller: Caller, *, before: str | None, limit: int) -> Sequence[Webhook]:
        caller.require(Scope.READ)
        return await self._store.read(lambda tx: tx.webhooks.page(caller.principal, before=before, limit=limit))

    async def change(self, caller: Caller, webhook_id: str, change: Change) -> Webhook:
        """Change what is named. Whatever was held for a webhook goes out as soon as that becomes active."""
        caller.require(Scope.WEBHOOKS)
        if change.url is not None:
            await self._guard.check(change.url)

        async def apply(tx: Transaction) -> Webhook:
            before = await own_webhook(tx, caller.principal, webhook_id)
            after = replace(_changed(before, change), updated_at=tx.now())
            if change.events is not None:
                self._check_watch(caller, after)
            if _watches(after) and after.state is not WebhookState.DISABLED:
                await _require_room_for_watch(tx, after)  # while disabled it took up none
            if _watches(before) or _watches(after):
                tx.ring(WATCHES)
            after = await self._verification.update(tx, before, after)
            if before.state is not after.state is WebhookState.ACTIVE:
                await tx.delivery_lanes.release(after.id, now=tx.now(), limit=RELEASE_STEP)
                tx.ring(DUE)
            return after

        changed = await self._store.write(apply)
        return changed if change.url is None else await self._challenged(caller, changed)

    async def verify(self, caller: Caller, webhook_id: str) -> Webhook:
        """Challenge its URL now; the webhook as it is after that, or as it is while the answer takes too long."""
        caller.require(Scope.WEBHOOKS)
        self._lifecycle.require_open()

        async def ask(tx: Transaction) -> Webhook:
            webhook = await own_webhook(tx, caller.principal, webhook_id)
            require_enabled(webhook)
            await self._verification.again(tx, webhook)
            return webhook

        webhook = await self._store.write(ask)
        await self._verification.wait(webhook.id)
        return await self._store.read(lambda tx: own_webhook(tx, caller.principal, webhook_id))

    async def test(self, caller: Caller, webhook_id: str) -> Delivery:
        """Send a test to this webhook, and to no other, by the way that every delivery takes."""
        caller.require(Scope.WEBHOOKS)
        self._lifecycle.require_open()
        self._quotas.count_start(caller.principal)

        async def test(tx: Transaction) -> Delivery:
            webhook = await own_webhook(tx, caller.principal, webhook_id)
            require_enabled(webhook)
            return await self._on_demand.test(tx, webhook)

        return await self._store.write(test)

    async def rotate_secret(
        self, caller: Caller, webhook_id: str, *, secret: str | None, overlap_seconds: float
    ) -> Rotated:
        """Sign with a new secret from now on, and with the old ones beside it until the overlap is over."""
        caller.require(Scope.WEBHOOKS)
        generated = None if secret else signing_secrets.generate(self._ids.random(SECRET_BYTES))
        newest = generated or _checked_secret(secret or "")

        async def rotate(tx: Transaction) -> Rotated:
            now = tx.now()
            webhook = await own_webhook(tx, caller.principal, webhook_id)
            webhook = rotated(webhook, newest, now=now, overlap_seconds=overlap_seconds)
            _require_few_secrets(webhook, now)
            await tx.webhooks.update(webhook)
            return Rotated(webhook=webhook, secret=generated, overlap_ends_at=now + seconds(overlap_seconds))

        return await self._store.write(rotate)

    async def remove(self, caller: Caller, webhook_id: str) -> None:
        """Remove it; what of it was not delivered yet is cancelled."""
        caller.require(Scope.WEBHOOKS)

        async def remove(tx: Transaction) -> None:
            webhook = await own_webhook(tx, caller.principal, webhook_id)
            await tx.webhooks.delete(webhook.id)
            if _watches(webhook):
                tx.ring(WATCHES)

        await self._store.write(remove)

    async def _prepare(
        self, caller: Caller, registration: Registration, *, origin: Origin
    ) -> tuple[str | None, Webhook]:
        await self._guard.check(registration.url)
        generated = None if registration.secret else signing_secrets.generate(self._ids.random(SECRET_BYTES))
        now = self._clock.now()
        expiry = registration.expires_in_seconds
        webhook = Webhook(
            id=self._ids.webhook(),
            principal=caller.principal,
            url=registration.url,
            events=registration.events,
            upstream=registration.upstream,
            resource_uri=registration.resource_uri,
            tool=registration.tool,
            call_id=CallId(registration.call_id) if registration.call_id else None,
            client_session_id=registration.client_session_id,
            correlation_id=registration.correlation_id,
            match_correlation=registration.match_correlation,
            secrets=(WebhookSecret(value=generated or _checked_secret(registration.secret or "")),),
            retries=registration.retries,
            include_result=registration.include_result,
            when=registration.when,
            ordered=registration.ordered,
            rate_per_second=registration.rate_per_second,
            description=registration.description,
            origin=origin,
            created_at=now,
            updated_at=now,
            expires_at=None if expiry is None else now + seconds(expiry),
        )
        self._check_watch(caller, webhook)
        return generated, webhook

    def _check_watch(self, caller: Caller, webhook: Webhook) -> None:
        """Only an upstream that the caller may see can be watched, and one that is not configured would never ring."""
        check_watch(webhook)
        upstreams = {info.name for info in self._catalog.upstreams()}
        if _watches(webhook) and not (webhook.upstream in upstreams and caller.may_use(webhook.upstream)):
            raise UnknownUpstream(
                "upstream: there is no upstream of this name. List them: GET /v1/upstreams", upstream=webhook.upstream
            )

    async def _challenged(self, caller: Caller, webhook: Webhook) -> Webhook:
        """The webhook once its URL has been challenged, if it has to be."""
        if webhook.state is not WebhookState.PENDING_VERIFICATION:
            return webhook
        await self._verification.wait(webhook.id)
        return await self._store.read(lambda tx: own_webhook(tx, caller.principal, webhook.id))

    async def _insert(self, tx: Transaction, webhook: Webhook, cursor: str | None) -> Webhook:
        """Under the lock of the log: a call that ends now is either found in it, or will find the webhook."""
        head = await tx.events.head(webhook.principal, lock=True)
        await self._quotas.require_room_for_webhook(tx, webhook.principal)
        after_seq = head if cursor is None else decode_seq(cursor)
        if webhook.call_id is not None:
            await _known_call(tx, webhook)
            after_seq = 0  # from its beginning, wherever the cursor stands
        if _watches(webhook):
            await _require_room_for_watch(tx, webhook)
            tx.ring(WATCHES)
        webhook = await self._verification.insert(tx, webhook)
        found = await self._recorder.catch_up(tx, webhook, after_seq=after_seq, events_max=CATCH_UP_EVENTS_MAX)
        if found is None:
            raise InvalidRequest(
                f"More than {CATCH_UP_EVENTS_MAX} events lie after this cursor. Poll GET /v1/events first, "
                "then register with a later cursor."
            )
        return webhook


async def own_webhook(tx: Transaction, principal: Principal, webhook_id: str) -> Webhook:
    if looks_like("wh", webhook_id):
        webhook = await tx.webhooks.get(WebhookId(webhook_id))
        if webhook is not None and webhook.principal == principal:
            return webhook
    raise NotFound("No webhook of yours has this id. List yours: GET /v1/webhooks")


def require_enabled(webhook: Webhook) -> None:
    if webhook.state is WebhookState.DISABLED:
        raise WebhookNotActive(
            "The webhook is disabled, so nothing is sent to it. Switch it on first: "
            f'PATCH /v1/webhooks/{webhook.id} {{"state": "active"}}'
        )


def _watches(webhook: Webhook) -> bool:
    return EventName.UPSTREAM_CHANGED in webhook.events


async def _require_room_for_watch(tx: Transaction, webhook: Webhook) -> None:
    if webhook.resource_uri is None:
        return
    watches = await tx.watches.all(now=tx.now())
    uris = {watch.resource_uri for watch in watches if watch.upstream == webhook.upstream} - {None}
    if webhook.resource_uri not in uris and len(uris) >= URIS_MAX:
        raise QuotaExceeded(
            f"{URIS_MAX} resources of this upstream are watched already. Remove a webhook that names one.",
            retry_after_seconds=60,
            quota="watched_resources",
            limit=URIS_MAX,
        )


def _require_few_secrets(webhook: Webhook, now: datetime) -> None:
    ends = [secret.ends_at for secret in webhook.secrets if secret.ends_at is not None]
    if len(ends) > OLD_SECRETS_MAX:
        raise QuotaExceeded(
            f"{OLD_SECRETS_MAX} older secrets of this webhook still sign. Wait until the first of them ends, or end them "
            "with a shorter overlap_seconds; 0 ends them all at once.",
            retry_after_seconds=math.ceil((min(ends) - now).total_seconds()),
            quota="old_secrets",
            limit=OLD_SECRETS_MAX,
        )


def _checked_secret(secret: str) -> str:
    try:
        signing_secrets.parse(secret)
    except signing_secrets.InvalidSecret as problem:
        raise InvalidRequest(f"secret: {problem}") from None
    return secret


async def _known_call(tx: Transaction, webhook: Webhook) -> None:
    call = await tx.calls.get(webhook.call_id) if webhook.call_id else None
    if call is None or call.principal != webhook.principal:
        raise InvalidRequest("call_id: no call of yours has this id. List yours: GET /v1/calls")


def _changed(webhook: Webhook, change: Change) -> Webhook:
    state = change.state or webhook.state
    if state is not webhook.state:
        _require_switchable(webhook, state)
    return replace(
        moved(switched(webhook, state), change.url or webhook.url),
        events=webhook.events if change.events is None else change.events,
        description=webhook.description if change.description is None else change.description,
        include_result=webhook.include_result if change.include_result is None else change.include_result,
        when=change.when or webhook.when,
        retries=change.retries or webhook.retries,
        rate_per_second=_rate(webhook, change),
    )


def _rate(webhook: Webhook, change: Change) -> float | None:
    if isinstance(change.rate_per_second, Unlimited):
        return None
    return change.rate_per_second or webhook.rate_per_second


def _require_switchable(webhook: Webhook, state: WebhookState) -> None:
    if state not in {WebhookState.ACTIVE, WebhookState.DISABLED}:
        raise InvalidRequest("state may be set to 'active' or 'disabled' only.")
    if state not in SWITCHES[webhook.state]:
        raise WebhookNotVerified(
            "The webhook waits for the proof that its URL wants callbacks. It becomes active by that and by nothing else; "
            f"until then nothing is sent to it. Ask for it: POST /v1/webhooks/{webhook.id}/verify. If you no longer want it, "
            "remove it."
        )
