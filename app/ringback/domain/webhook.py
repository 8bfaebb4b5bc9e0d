"""Webhooks: who is to be rung, and for what.

`hears` is the whole rule of matching, one pure function. It is evaluated inside the transaction that writes the event, and
registering takes the lock of the same log, so a call that ends at that moment is either before (and found in the log) or
after (and matched).
"""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final

from ringback.domain.event import Event, EventName
from ringback.domain.ids import CallId, WebhookId
from ringback.domain.principal import Principal
from ringback.domain.retry import Profile


class WebhookState(StrEnum):
    ACTIVE = "active"
    PENDING_VERIFICATION = "pending_verification"
    """Registered, not proven: its deliveries are born held."""
    SUSPENDED = "suspended"
    """Failing for days: its deliveries are born held until it answers again."""
    DISABLED = "disabled"
    """Switched off by its owner: it hears nothing."""


class Origin(StrEnum):
    """Through which door the webhook was registered."""

    REST = "rest"
    MCP = "mcp"
    CALL = "call"
    """Given along with one call; it ends with it."""


DEFAULT_EVENTS: Final = frozenset({EventName.CALL_FINISHED, EventName.CALL_INPUT_REQUIRED})
HOLDING: Final = frozenset({WebhookState.PENDING_VERIFICATION, WebhookState.SUSPENDED})


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSecret:
    """A `whsec_…` signing secret; `ends_at` is set on one that rotation has replaced."""

    value: str = field(repr=False)
    ends_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    id: WebhookId
    principal: Principal
    url: str
    events: frozenset[EventName] = DEFAULT_EVENTS
    upstream: str | None = None
    tool: str | None = None
    call_id: CallId | None = None
    client_session_id: str | None = None
    correlation_id: str | None = None
    match_correlation: bool = False
    secrets: tuple[WebhookSecret, ...] = field(repr=False)
    """Newest first; sealed at rest."""
    retries: Profile = Profile.DAYS
    include_result: bool = False
    description: str | None = None
    state: WebhookState = WebhookState.ACTIVE
    origin: Origin = Origin.REST
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None
    last_delivery_at: datetime | None = None
    last_error: str | None = None
    """A fixed category, never a receiver's words."""
    failing_since: datetime | None = None

    def holds(self) -> bool:
        """Whether deliveries for it are born held, to be released when it becomes active."""
        return self.state in HOLDING


def hears(webhook: Webhook, event: Event, *, now: datetime) -> bool:
    """Whether this event is delivered to this webhook."""
    return (
        webhook.principal == event.principal
        and webhook.state is not WebhookState.DISABLED
        and not _expired(webhook, now)
        and event.name in webhook.events
        and _equal_where_set(webhook.upstream, event.upstream)
        and _equal_where_set(webhook.tool, event.tool)
        and _equal_where_set(webhook.call_id, event.call_id)
        and _equal_where_set(webhook.client_session_id, event.client_session_id)
        and (not webhook.match_correlation or _equal_where_set(webhook.correlation_id, event.correlation_id))
    )


def signing_secrets(webhook: Webhook, *, now: datetime) -> tuple[str, ...]:
    """The secrets that sign an attempt made now: the current one and those that rotation still lets live."""
    return tuple(secret.value for secret in webhook.secrets if secret.ends_at is None or secret.ends_at > now)


def describe(webhook: Webhook) -> str:
    """One sentence that says what will ring, for the person who just registered it."""
    if webhook.state is WebhookState.DISABLED:
        return "Nothing rings: the webhook is disabled."
    names = ", ".join(sorted(webhook.events))
    if webhook.call_id is not None:
        return f"Rings for {names} of the call {webhook.call_id}, from its beginning."
    return f"Rings for {names} of {_scope_of(webhook)}, from now on."


def _scope_of(webhook: Webhook) -> str:
    filters = {
        "upstream": webhook.upstream,
        "tool": webhook.tool,
        "client_session_id": webhook.client_session_id,
        "correlation_id": webhook.correlation_id if webhook.match_correlation else None,
    }
    told = " and ".join(f"{name} '{value}'" for name, value in filters.items() if value is not None)
    return f"your calls with {told}" if told else "every call of yours"


def _expired(webhook: Webhook, now: datetime) -> bool:
    return webhook.expires_at is not None and webhook.expires_at <= now


def _equal_where_set(wanted: str | None, actual: str | None) -> bool:
    return wanted is None or wanted == actual
