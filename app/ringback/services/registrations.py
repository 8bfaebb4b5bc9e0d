"""Registering webhooks: what a client asks for becomes a webhook that hears from now on, or from a place in the log."""

from dataclasses import dataclass, field, replace

from ringback.domain.call import Call
from ringback.domain.clock import Clock, seconds
from ringback.domain.cursor import decode_place
from ringback.domain.errors import InvalidRequest
from ringback.domain.event import EventName
from ringback.domain.ids import CallId, Ids
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Scope
from ringback.domain.retry import Profile
from ringback.domain.upstreams import Catalog
from ringback.domain.watches import WATCHES
from ringback.domain.webhook import DEFAULT_EVENTS, Origin, Webhook, WebhookSecret, When
from ringback.notifier.places import knows_place
from ringback.notifier.record import Recorder
from ringback.notifier.target_guard import TargetGuard
from ringback.services.lifecycle import Lifecycle
from ringback.services.quotas import QuotaKeeper
from ringback.services.verification import Verification
from ringback.services.webhook_rules import check_watched, chosen_secret, require_room_for_watch, watches


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    webhook: Webhook
    secret: str | None = field(default=None, repr=False)
    """The signing secret if it was generated just now; shown this once."""


class Registrations:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        ids: Ids,
        recorder: Recorder,
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
        return Registered(webhook=await self._verification.once_challenged(webhook), secret=generated)

    async def prepare_callback(
        self, caller: Caller, registration: Registration | None
    ) -> tuple[str | None, Webhook | None]:
        """A webhook for one call, if one is asked for: checked but not stored, which the call's own transaction does."""
        if registration is None:
            return None, None
        return await self._prepare(caller, registration, origin=Origin.CALL)

    async def insert_callback(self, tx: Transaction, webhook: Webhook | None, call: Call) -> None:
        """Store the call's webhook, if it has one. Nobody waits for its proof: the call begins, and what it tells is held.

        Raises `QuotaExceeded` before anything is written.
        """
        if webhook is not None:
            await self._verification.insert(tx, replace(webhook, call_id=call.id))

    async def _prepare(
        self, caller: Caller, registration: Registration, *, origin: Origin
    ) -> tuple[str | None, Webhook]:
        await self._guard.check(registration.url, caller.principal)
        secret, generated = chosen_secret(registration.secret, self._ids)
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
            secrets=(WebhookSecret(value=secret),),
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
        check_watched(caller, webhook, self._catalog)
        return generated, webhook

    async def _insert(self, tx: Transaction, webhook: Webhook, cursor: str | None) -> Webhook:
        """Under the lock of the log: a call that ends now is either found in it, or will find the webhook."""
        head = await tx.event_places.head(webhook.principal, lock=True)
        await self._quotas.require_room_for_webhook(tx, webhook.principal)
        place = None if cursor is None else decode_place(cursor)
        log_was_lost = place is not None and not await knows_place(tx, webhook.principal, place)
        after_seq = head if place is None or log_was_lost else place.seq
        if webhook.call_id is not None:
            await _known_call(tx, webhook)
            after_seq = 0  # from its beginning, wherever the cursor stands
        if watches(webhook):
            await require_room_for_watch(tx, webhook)
            tx.ring(WATCHES)
        webhook = await self._verification.insert(tx, webhook)
        if log_was_lost and webhook.call_id is None:
            await self._recorder.tell_gap(tx, webhook)
        if after_seq < head:
            await self._recorder.catch_ups.begin(tx, webhook, after_seq=after_seq)
        return webhook


async def _known_call(tx: Transaction, webhook: Webhook) -> None:
    call = await tx.calls.get(webhook.call_id) if webhook.call_id else None
    if call is None or call.principal != webhook.principal:
        raise InvalidRequest("call_id: no call of yours has this id. List yours: GET /v1/calls")
