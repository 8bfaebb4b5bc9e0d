"""Registration of webhooks. A new webhook receives events from now on, or from a place in the event log."""

from dataclasses import dataclass, field, fields, replace
from datetime import datetime

from ringback.domain import jsontext
from ringback.domain.call import Call
from ringback.domain.callback_headers import CallbackHeaders
from ringback.domain.change_subscriptions import CHANGE_SUBSCRIPTIONS_TOPIC
from ringback.domain.clock import Clock, seconds
from ringback.domain.cursor import decode_log_position
from ringback.domain.errors import Gone, IdempotencyConflict, InvalidRequest
from ringback.domain.event_types import split_name
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.upstreams import ToolCatalog
from ringback.domain.webhook import (
    SUBSCRIPTION_ID_PREFIX,
    WEBHOOK_ID_PREFIX,
    Webhook,
    WebhookOrigin,
    WebhookSecret,
    WebhookSpec,
    with_rotated_secret,
    with_url,
)
from ringback.domain.webhook_text import describe_webhook
from ringback.notifier.catch_up import CatchUps
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.log_positions import log_contains_position
from ringback.notifier.recorder import Recorder
from ringback.services.access.api_keys import require_held_key
from ringback.services.audit import record_own_change
from ringback.services.events.event_types import EventTypes
from ringback.services.lifecycle import Lifecycle
from ringback.services.limits.quotas import QuotaEnforcer
from ringback.services.webhooks.attempt_scheduling import AttemptScheduler
from ringback.services.webhooks.shared_webhooks import (
    EXPIRY_STEP,
    callback_needed_until,
    extend_expiry,
    find_same_webhook,
)
from ringback.services.webhooks.verification import WebhookVerification
from ringback.services.webhooks.webhook_checks import (
    SECRET_OVERLAP_SECONDS_DEFAULT,
    check_subscribed_upstream,
    choose_secret,
    get_repeated_secret,
    require_effective_outcomes,
    require_headers_for_origin,
    require_secret_quota,
    require_subscription_quota,
    subscribes_to_changes,
    warn_of_unlisted_upstream,
)
from ringback.services.webhooks.webhook_updates import UpdatedWebhook, update_webhook


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRegistration(WebhookSpec):
    """A client's request for a webhook."""

    secret: str | None = field(default=None, repr=False)
    """The signing secret; without one, the service generates it."""
    headers: CallbackHeaders | None = field(default=None, repr=False)
    """Added to every callback. A registration under the name of an existing webhook keeps its headers without them."""
    cursor: str | None = None
    """Start after this place in the event log, instead of at its end."""
    expires_in_seconds: float | None = None

    def compute_hash(self) -> str:
        """The hash that decides whether two registrations are the same request."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        sets = {"events": sorted(self.events), "outcomes": self.outcomes and sorted(self.outcomes)}
        if self.retry_steps is None:
            del values["retry_steps"]  # hashes of earlier versions did not have it
        return jsontext.sha256(jsontext.dumps_canonical(values | sets))


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisteredWebhook:
    webhook: Webhook
    secret: str | None = field(default=None, repr=False)
    """The signing secret if the service has just generated it. It is shown only in this response."""
    is_new: bool = True
    """False if the name or the idempotency key named a webhook that already existed."""
    warning: str = ""
    """What its owner may not have meant; empty without such."""

    @property
    def hears(self) -> str:
        """One sentence that says which events the webhook receives, and the warning."""
        return " ".join(filter(None, (describe_webhook(self.webhook), self.warning)))


@dataclass(frozen=True, slots=True)
class BuiltWebhook:
    """A webhook that is checked and not stored yet."""

    webhook: Webhook
    generated_secret: str | None = field(repr=False)
    """Its signing secret if the client has sent none."""


class WebhookRegistrations:
    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        ids: IdGenerator,
        recorder: Recorder,
        catch_ups: CatchUps,
        guard: TargetGuard,
        quotas: QuotaEnforcer,
        lifecycle: Lifecycle,
        verification: WebhookVerification,
        attempts: AttemptScheduler,
        catalog: ToolCatalog,
        event_types: EventTypes,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._recorder = recorder
        self._catch_ups = catch_ups
        self._guard = guard
        self._quotas = quotas
        self._lifecycle = lifecycle
        self._verification = verification
        self._attempts = attempts
        self._catalog = catalog
        self._event_types = event_types

    async def register_webhook(
        self, caller: Caller, registration: WebhookRegistration, *, idempotency_key: str | None = None
    ) -> RegisteredWebhook:
        """Register a callback URL. From the return of this method on, every matching event is delivered to it.

        If the URL needs a proof, deliveries are held until the proof. The method waits for the first challenge, for a few
        seconds at most. As long as the webhook exists, the same idempotency key with the same registration returns it.
        """
        caller.require_scope(Scope.WEBHOOKS)
        self._lifecycle.require_running()
        if idempotency_key is None:
            built = await self._build_webhook(caller, registration, origin=WebhookOrigin.REST)
            webhook = await self._store.write_for(
                caller.principal, lambda tx: self._insert_webhook(tx, caller, built.webhook, registration.cursor)
            )
            return await self._complete(caller, RegisteredWebhook(webhook=webhook, secret=built.generated_secret))
        existing = await self._store.read(
            lambda tx: _find_registered(tx, caller.principal, idempotency_key, registration)
        )
        return await self._complete(
            caller, existing or await self._register_with_key(caller, registration, idempotency_key)
        )

    async def register_named(self, caller: Caller, name: str, registration: WebhookRegistration) -> RegisteredWebhook:
        """Register a callback URL under a name, or give the webhook of this name exactly these settings.

        An existing webhook keeps its state and its place in the log. Another secret than its newest one replaces that, with the
        usual overlap; without a secret in the registration it keeps its secrets.
        """
        caller.require_scope(Scope.WEBHOOKS)
        _require_name_unlike_id(name)
        self._lifecycle.require_running()
        built = await self._build_webhook(caller, registration, origin=WebhookOrigin.REST)
        wanted = replace(built.webhook, name=name)

        async def insert_or_change(tx: Transaction) -> tuple[RegisteredWebhook, UpdatedWebhook | None]:
            existing = await tx.registered_webhooks.find_by_name(caller.principal, name)
            if existing is None:
                inserted = await self._insert_webhook(tx, caller, wanted, registration.cursor)
                return RegisteredWebhook(webhook=inserted, secret=built.generated_secret), None
            headers = existing.headers if registration.headers is None else registration.headers
            await require_headers_for_origin(
                tx,
                existing,
                wanted.url,
                are_given=registration.headers is not None,
                policy=self._guard.policy,
                replaces_secret=registration.secret is not None,
            )
            wanted_with_headers = replace(wanted, headers=headers)
            changed = _with_settings_of(existing, wanted_with_headers, now=tx.now(), secret=registration.secret)
            if changed == existing:
                return RegisteredWebhook(webhook=existing, is_new=False), None
            updated = await update_webhook(tx, self._verification, self._attempts, existing, changed)
            await record_own_change(tx, caller, "put_webhook", changed.id)
            return RegisteredWebhook(webhook=updated.webhook, is_new=False), updated

        registered, updated = await self._store.write_for(caller.principal, insert_or_change)
        if updated is not None:
            await self._attempts.schedule_rest(caller.principal, updated.webhook.id)
        return await self._complete(caller, registered)

    async def register_once(self, caller: Caller, registration: WebhookRegistration) -> Webhook:
        """Register a callback URL for a model. The same registration again is the same webhook, with a later expiry.

        The method does not wait for the first challenge, because the model's client may wait for five seconds only.
        """
        caller.require_scope(Scope.WEBHOOKS)
        self._lifecycle.require_running()
        built = await self._build_webhook(caller, registration, origin=WebhookOrigin.MCP)
        webhook, has_any_secret = built.webhook, built.generated_secret is not None

        async def find_and_extend(tx: Transaction) -> Webhook | None:
            same = await find_same_webhook(tx, webhook, has_any_secret=has_any_secret)
            if same is None or webhook.expires_at is None:
                return same
            return await extend_expiry(tx, same, webhook.expires_at)

        async def extend_or_insert(tx: Transaction) -> Webhook | None:
            """None if another unit has inserted the webhook since: a webhook is locked before the log."""
            if (same := await find_and_extend(tx)) is not None:
                return same
            await tx.event_log.get_head(webhook.principal, lock=True)  # the same registration at once inserts nothing
            if await find_same_webhook(tx, webhook, has_any_secret=has_any_secret) is not None:
                return None
            return await self._insert_webhook(tx, caller, webhook, registration.cursor)

        while (registered := await self._store.write_for(caller.principal, extend_or_insert)) is None:
            pass
        return registered

    async def prepare_callback(self, caller: Caller, registration: WebhookRegistration | None) -> BuiltWebhook | None:
        """Check the callback of one call, if there is one. The transaction of the call stores it.

        A registration with a client_session_id asks for a webhook that the calls of this session share.
        """
        if registration is None:
            return None
        built = await self._build_webhook(caller, registration, origin=WebhookOrigin.CALL)
        if built.generated_secret is None or registration.client_session_id is not None:
            return built
        return replace(built, webhook=replace(built.webhook, request_hash=registration.compute_hash()))

    async def insert_callback(self, tx: Transaction, built: BuiltWebhook | None, call: Call) -> bool:
        """Store the call's callback, if it has one. The call starts at once; deliveries are held until a needed proof.

        Returns whether a webhook was inserted; none is if the call shares one. Raises `QuotaExceeded` before the first write.
        """
        if built is None:
            return False
        webhook = built.webhook
        if webhook.client_session_id is None:
            await self._verification.insert_webhook(tx, replace(webhook, call_id=call.id))
            return True
        needed_until = callback_needed_until(call.deadline_at)
        shared = await _find_and_extend(tx, built, needed_until)
        if shared is None:
            # Another call of the session, starting at once, may insert it; under the lock of the log one of them does.
            await tx.event_log.get_head(webhook.principal, lock=True)
            shared = await _find_and_extend(tx, built, needed_until)
        if shared is None:
            await self._quotas.require_webhook_quota(tx, webhook.principal)
            await self._verification.insert_webhook(tx, replace(webhook, expires_at=needed_until + EXPIRY_STEP))
        await tx.call_webhooks.add(call.id, (shared or webhook).id)
        return shared is None

    async def _register_with_key(
        self, caller: Caller, registration: WebhookRegistration, key: str
    ) -> RegisteredWebhook:
        built = await self._build_webhook(caller, registration, origin=WebhookOrigin.REST)
        webhook = replace(built.webhook, idempotency_key=key, request_hash=registration.compute_hash())

        async def insert_once(tx: Transaction) -> RegisteredWebhook:
            existing = await _find_registered(tx, caller.principal, key, registration)
            if existing is not None:
                return existing
            inserted = await self._insert_webhook(tx, caller, webhook, registration.cursor)
            return RegisteredWebhook(webhook=inserted, secret=built.generated_secret)

        return await self._store.write_for(caller.principal, insert_once)

    async def _complete(self, caller: Caller, registered: RegisteredWebhook) -> RegisteredWebhook:
        """The webhook after its first challenge, with the warning for its owner."""
        webhook = await self._verification.wait_until_challenged(registered.webhook)
        return replace(registered, webhook=webhook, warning=warn_of_unlisted_upstream(caller, webhook, self._catalog))

    async def _build_webhook(
        self, caller: Caller, registration: WebhookRegistration, *, origin: WebhookOrigin
    ) -> BuiltWebhook:
        await self._guard.check_url(registration.url, caller.principal)
        secret, generated = choose_secret(registration.secret, self._ids)
        now = self._clock.now()
        expiry = registration.expires_in_seconds
        webhook = Webhook(
            **registration.settings(),
            id=self._ids.new_webhook_id(),
            principal=caller.principal,
            secrets=(WebhookSecret(value=secret),),
            headers=registration.headers or (),
            origin=origin,
            created_at=now,
            updated_at=now,
            expires_at=None if expiry is None else now + seconds(expiry),
        )
        check_subscribed_upstream(caller, webhook, self._catalog)
        require_effective_outcomes(webhook)
        await self._event_types.check_event_names(caller, webhook.events)
        await self._event_types.demand_upstream_events(caller, webhook.events)
        return BuiltWebhook(webhook, generated_secret=generated)

    async def _insert_webhook(self, tx: Transaction, caller: Caller, webhook: Webhook, cursor: str | None) -> Webhook:
        """Hold the lock of the log: a call that ends now is either already in the log, or its event matches the new webhook."""
        await require_held_key(tx, caller)
        head = await tx.event_log.get_head(webhook.principal, lock=True)
        await self._quotas.require_webhook_quota(tx, webhook.principal)
        position = None if cursor is None else decode_log_position(cursor)
        log_was_lost = position is not None and not await log_contains_position(tx, webhook.principal, position)
        after_seq = head if position is None or log_was_lost else position.seq
        if webhook.call_id is not None:
            await _require_own_call(tx, webhook)
            after_seq = 0  # the webhook receives the call from its beginning, also with a later cursor
        if cursor is not None or after_seq < head:  # each event after it is delivered
            await self._quotas.require_delivery_quota(tx, webhook.principal)
        if subscribes_to_changes(webhook):
            await require_subscription_quota(tx, webhook)
            tx.notify(CHANGE_SUBSCRIPTIONS_TOPIC)
        webhook = await self._verification.insert_webhook(tx, webhook)
        if log_was_lost and webhook.call_id is None:
            await self._recorder.enqueue_gap(tx, webhook)
        elif await _lacks_upstream_events(tx, webhook, after_seq):
            await self._recorder.enqueue_gap(tx, webhook, after_seq=after_seq)
        if after_seq < head:
            await self._catch_ups.begin_catch_up(tx, webhook, after_seq=after_seq)
        await record_own_change(tx, caller, "register_webhook" if webhook.name is None else "put_webhook", webhook.id)
        return webhook


async def _find_and_extend(tx: Transaction, wanted: BuiltWebhook, needed_until: datetime) -> Webhook | None:
    same = await find_same_webhook(tx, wanted.webhook, has_any_secret=wanted.generated_secret is not None)
    return None if same is None else await extend_expiry(tx, same, needed_until)


async def _find_registered(
    tx: Transaction, principal: Principal, key: str, registration: WebhookRegistration
) -> RegisteredWebhook | None:
    """The webhook of this idempotency key; raises for another registration, or if the webhook has expired.

    A client repeats the request if it has not received the response, which had the generated secret. So the secret is shown
    again, for a while and as long as the webhook is unchanged.
    """
    webhook = await tx.registered_webhooks.find_by_idempotency_key(principal, key)
    if webhook is None:
        return None
    if webhook.request_hash != registration.compute_hash():
        raise IdempotencyConflict(
            "This Idempotency-Key was used for another registration. Send the same registration, or a new key.",
            webhook_id=webhook.id,
        )
    if webhook.expires_at is not None and webhook.expires_at <= tx.now():
        raise Gone("The webhook of this Idempotency-Key has expired. Register another one with a new key.")
    secret = None if registration.secret is not None else get_repeated_secret(webhook, now=tx.now())
    return RegisteredWebhook(webhook=webhook, secret=secret, is_new=False)


def _with_settings_of(webhook: Webhook, wanted: Webhook, *, now: datetime, secret: str | None) -> Webhook:
    """The webhook with the settings, the headers, the expiry and, if one is given, the secret of `wanted`."""
    moved = with_url(webhook, wanted.url)
    changed = replace(moved, **wanted.settings(), headers=wanted.headers, expires_at=wanted.expires_at)
    if secret is not None and (webhook.has_unreadable_secrets or webhook.secrets[0].value != secret):
        changed = with_rotated_secret(changed, secret, now=now, overlap_seconds=SECRET_OVERLAP_SECONDS_DEFAULT)
        require_secret_quota(changed, now)
    return changed if changed == webhook else replace(changed, updated_at=now)


async def _lacks_upstream_events(tx: Transaction, webhook: Webhook, after_seq: int) -> bool:
    """Whether the log lacks events of upstreams after this place that the webhook asks for, because no client demanded them."""
    names = [name for name in sorted(webhook.events) if split_name(name)[0] is not None]
    demands = [await tx.event_demands.get(webhook.principal, name, "") for name in names]
    return any(demand is not None and demand.gap_seq > after_seq for demand in demands)


async def _require_own_call(tx: Transaction, webhook: Webhook) -> None:
    call = await tx.calls.get(webhook.call_id, lock=False) if webhook.call_id else None
    if call is None or call.principal != webhook.principal:
        raise InvalidRequest("call_id: no call of yours has this id. List yours: GET /v1/calls")


def _require_name_unlike_id(name: str) -> None:
    """Raise `InvalidRequest` for a name that looks like an id: commands take either, and know them apart by the prefix."""
    if name.startswith((WEBHOOK_ID_PREFIX, SUBSCRIPTION_ID_PREFIX)):
        raise InvalidRequest(
            f"name: names that begin with {WEBHOOK_ID_PREFIX} or {SUBSCRIPTION_ID_PREFIX} look like ids. Choose another name."
        )
