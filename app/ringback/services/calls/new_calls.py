"""New calls: the request, the checks and the response that starting, adopting and reporting a call share."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from ringback.domain.call import Call, CallPhase, compute_request_hash
from ringback.domain.clock import seconds
from ringback.domain.cursor import LogPosition
from ringback.domain.errors import InvalidRequest
from ringback.domain.event import EventName, build_call_event
from ringback.domain.ids import CallId, EventId, IdGenerator
from ringback.domain.ports import Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.webhook import Webhook, WebhookOrigin
from ringback.notifier.fan_out import find_matching_webhooks
from ringback.notifier.resume_tokens import CallResumeTokens
from ringback.services.webhooks.registrations import BuiltWebhook, WebhookRegistration, WebhookRegistrations
from ringback.services.webhooks.shared_webhooks import get_named_webhook
from ringback.services.webhooks.webhook_checks import get_repeated_secret
from ringback.telemetry.logs import call_facts
from ringback.telemetry.spans import current_traceparent

log = logging.getLogger(__name__)

TIMEOUT_SECONDS_DEFAULT: Final = 7 * 24 * 3600.0
TIMEOUT_SECONDS_MAX: Final = 30 * 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """The members that every request for a new call has."""

    upstream: str
    tool: str
    client_session_id: str | None = None
    correlation_id: str | None = None
    call_id: CallId | None = None
    """A new id with which the client can find the call; None lets the service choose one."""
    callback: WebhookRegistration | None = None
    timeout_seconds: float = TIMEOUT_SECONDS_DEFAULT
    """The call's deadline, counted from the creation of the call, or from its `not_before`."""
    traceparent: str | None = field(default_factory=current_traceparent, repr=False)
    """The trace context of the request that is handled now."""

    def require_allowed(self, caller: Caller, scope: Scope) -> None:
        """Raise `Forbidden` without the scope. A callback is a webhook, so it also needs the scope `webhooks`."""
        caller.require_scope(scope)
        if self.callback is not None:
            caller.require_scope(Scope.WEBHOOKS)

    def require_valid_timeout(self) -> None:
        if not 0 < self.timeout_seconds <= TIMEOUT_SECONDS_MAX:
            raise InvalidRequest(f"timeout_seconds must be above 0 and at most {TIMEOUT_SECONDS_MAX:.0f}.")

    def hash_with_arguments(self, arguments: dict[str, Any]) -> str:
        """The hash that decides whether two requests are the same request."""
        return compute_request_hash(
            upstream=self.upstream,
            tool=self.tool,
            arguments=arguments,
            callback_url=self.callback.url if self.callback else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedCall:
    """The response to a request that starts, adopts or reports a call."""

    call: Call
    resume_token: str = field(repr=False)
    webhooks: Sequence[Webhook]
    """The webhooks that receive a callback when the call ends."""
    is_new: bool
    """False when the idempotency key named a call that already existed."""
    callback_secret: str | None = field(default=None, repr=False)
    """The callback's signing secret if the service has generated it, for this request or for the one that this one repeats."""


class NewCallWriter:
    """Stores a new call together with its callback, and builds the response."""

    def __init__(self, *, ids: IdGenerator, tokens: CallResumeTokens, registrations: WebhookRegistrations) -> None:
        self._ids = ids
        self._tokens = tokens
        self._registrations = registrations

    def build_call(
        self,
        principal: Principal,
        request: CallRequest,
        *,
        now: datetime,
        not_before: datetime | None = None,
        **values: Any,
    ) -> Call:
        """A call that is queued at once, or scheduled if `not_before` is later than `now`. Its deadline counts from then."""
        starts_at = now
        if not_before is not None and not_before > now:
            starts_at = not_before
            values |= {"not_before": not_before, "phase": CallPhase.SCHEDULED}
        return Call(
            id=request.call_id or self._ids.new_call_id(),
            principal=principal,
            upstream=request.upstream,
            tool=request.tool,
            client_session_id=request.client_session_id,
            correlation_id=request.correlation_id,
            traceparent=request.traceparent,
            created_at=now,
            updated_at=now,
            deadline_at=starts_at + seconds(request.timeout_seconds),
            **values,
        )

    async def prepare_callback(self, caller: Caller, request: CallRequest) -> BuiltWebhook | None:
        """Check the callback of the request, before the transaction that inserts it."""
        return await self._registrations.prepare_callback(caller, request.callback)

    async def insert_callback(
        self,
        tx: Transaction,
        call: Call,
        callback: BuiltWebhook | None,
        *,
        webhook_id: str | None = None,
    ) -> str | None:
        """Store the callback, and link the webhook that the request names. Return the secret that was generated for it.

        None if the client has sent one, or shares a webhook with an earlier call of its session, which has its own secret.
        Both can refuse the call, so this comes before its row.
        """
        named = None if webhook_id is None else await get_named_webhook(tx, call.principal, webhook_id)
        is_inserted = await self._registrations.insert_callback(tx, callback, call)
        if named is not None:
            await tx.call_webhooks.add(call.id, named.id)
        return callback.generated_secret if callback is not None and is_inserted else None

    async def build_started_call(
        self, tx: Transaction, call: Call, *, is_new: bool, secret: str | None = None
    ) -> StartedCall:
        """A new call's token stands at the end of the log before the call's first event; any other token at its beginning.

        The token's position carries no mark: a log without this position belongs to a database without this call.
        """
        head = await tx.event_log.get_head(call.principal)
        completion_event = build_call_event(EventName.CALL_FINISHED, call, event_id=EventId(""), seq=head, now=tx.now())
        position = LogPosition(head if is_new and not call.is_final else 0)
        return StartedCall(
            call=call,
            resume_token=self._tokens.issue_token(call, position=position),
            webhooks=await find_matching_webhooks(tx, completion_event),
            is_new=is_new,
            callback_secret=secret,
        )

    async def build_known_call(self, tx: Transaction, call: Call, request: CallRequest) -> StartedCall:
        """The response to a request that was sent before, for this call.

        A client repeats a request whose response it has not received, and that had the generated secret of the callback.
        """
        started = await self.build_started_call(tx, call, is_new=False)
        return replace(started, callback_secret=_find_generated_secret(started, request.callback, now=tx.now()))


def _find_generated_secret(started: StartedCall, callback: WebhookRegistration | None, *, now: datetime) -> str | None:
    """The secret that was generated for the same callback of this call. One that its client has sent is never shown."""
    if callback is None or callback.secret is not None:
        return None
    request_hash = callback.compute_hash()
    same = [
        each for each in started.webhooks if each.origin is WebhookOrigin.CALL and each.request_hash == request_hash
    ]
    return get_repeated_secret(same[0], now=now) if same else None


def log_started_calls(started: Sequence[StartedCall]) -> None:
    """One line for each new call. It is the line that has both the ids of the request and the ids of the call."""
    for each in started:
        if each.is_new:
            log.info("call.started", extra={**call_facts(each.call), "tool": each.call.tool})
