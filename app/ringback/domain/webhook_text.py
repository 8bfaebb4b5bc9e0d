"""The sentences that say which events a webhook receives, for its owner or for an operator."""

from typing import Final

from ringback.domain.event import EventName
from ringback.domain.principal import Principal
from ringback.domain.webhook import DeliveryCondition, Webhook, WebhookOrigin, WebhookState

WEBHOOK_EVENTS: Final = frozenset({EventName.WEBHOOK_FAILING, EventName.WEBHOOK_SUSPENDED, EventName.WEBHOOK_RECOVERED})
"""Events about webhooks. They belong to no call, upstream or tool."""


def describe_webhook(webhook: Webhook, *, reader: Principal | None = None) -> str:
    """A sentence that says which events the webhook receives, for its owner. It names the owner to any other `reader`."""
    owner = None if reader in {None, webhook.principal} else webhook.principal
    if webhook.state is WebhookState.DISABLED:
        return "Receives nothing: the webhook is disabled."
    if webhook.state is WebhookState.PENDING_VERIFICATION:
        return "Receives nothing until the URL has answered its challenge. Deliveries are held until then."
    if webhook.paused_at is not None:
        return "Receives nothing while it is paused. Deliveries are held until it is resumed."
    call_events = (webhook.events & set(EventName)) - WEBHOOK_EVENTS - {EventName.UPSTREAM_CHANGED}
    external_events = webhook.events - set(EventName)
    sentences = [_describe_upstream_events(webhook)] if EventName.UPSTREAM_CHANGED in webhook.events else []
    if external_events:
        sentences.append(_describe_external_events(webhook, ", ".join(sorted(external_events))))
    if webhook_events := webhook.events & WEBHOOK_EVENTS:
        sentences.append(_describe_webhook_events(webhook, ", ".join(sorted(webhook_events)), owner))
    if call_events:
        names = [_describe_event_name(webhook, name) for name in sorted(call_events)]
        sentences.insert(0, _describe_call_events(webhook, ", ".join(names), owner))
    return " ".join(sentences)


def _describe_event_name(webhook: Webhook, name: str) -> str:
    if name != EventName.CALL_FINISHED or webhook.outcomes is None:
        return name
    return f"{name} with the outcome {' or '.join(sorted(webhook.outcomes))}"


def _describe_call_events(webhook: Webhook, names: str, owner: Principal | None) -> str:
    if webhook.call_id is not None:
        return (
            f"Receives {names} of the call {webhook.call_id}, from its beginning{_describe_inline_exception(webhook)}."
        )
    if webhook.origin is WebhookOrigin.CALL:
        calls = "those of your calls" if owner is None else f"those calls of {owner}"
        return f"Receives {names} of {calls} that name this callback{_describe_inline_exception(webhook)}."
    return f"Receives {names} of {_describe_filters(webhook, owner)}, from now on{_describe_inline_exception(webhook)}."


def _describe_inline_exception(webhook: Webhook) -> str:
    if webhook.when is DeliveryCondition.ALWAYS or EventName.CALL_FINISHED not in webhook.events:
        return ""
    return ", but not for a call whose end its client received while it waited"


def _describe_upstream_events(webhook: Webhook) -> str:
    what = "its tools, resources or prompts change" if webhook.resource_uri is None else "the resource you name changes"
    return f"Receives upstream.changed when upstream '{webhook.upstream}' reports that {what}, from now on."


def _describe_webhook_events(webhook: Webhook, names: str, owner: Principal | None) -> str:
    if webhook.call_id or webhook.upstream or webhook.tool:
        return f"Receives no {names}: they belong to no call, upstream or tool."
    conditions = _describe_conditions(webhook)
    others = "your other webhooks" if owner is None else f"other webhooks of {owner}"
    return f"Receives {names} about {others}{f' with {conditions}' if conditions else ''}, from now on."


def _describe_external_events(webhook: Webhook, names: str) -> str:
    """Events of clients and upstreams belong to no call."""
    conditions = _describe_conditions(webhook)
    return f"Receives {names}{f' with {conditions}' if conditions else ''}, from now on."


def _describe_filters(webhook: Webhook, owner: Principal | None) -> str:
    conditions = _describe_conditions(webhook)
    if conditions:
        return f"{'your calls' if owner is None else f'calls of {owner}'} with {conditions}"
    return f"every call of {owner or 'yours'}"


def _describe_conditions(webhook: Webhook) -> str:
    filters = {
        "upstream": webhook.upstream,
        "tool": webhook.tool,
        "client_session_id": webhook.client_session_id,
        "correlation_id": webhook.correlation_id if webhook.match_correlation else None,
    }
    return " and ".join(f"{name} '{value}'" for name, value in filters.items() if value is not None)
