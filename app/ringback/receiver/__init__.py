"""The receiver of callbacks: verifies them, handles each once, and waits for a certain one.

In any web framework, use `verify` and `parse`:

    verify(headers, body, secrets)     raises VerificationError unless the sender signed exactly this body, recently
    parse(body)                        Callback, or a control envelope: Verification, Gap, Terminated

`ReceiverApp` is an ASGI application with all of it. In FastAPI: `receiver.add_to(app, "/callbacks")`.

    POST ──▶ bounded body ──▶ verify ──▶ parse ──▶ seen before? ──▶ a turn of its session ──▶ on_callback ──▶ 204
             413              400        400       204              too long: 503             raises: 500, NotReady: 503
                                                                                              │
                                                                 receiver.wait_for(correlation_id=…)

    with an inbox:  … seen before? ──▶ on disk ──▶ 204        then: a turn of its session ──▶ on_callback, until it succeeds
                                       no room: 503

`callback.value_or_raise()` is what the tool returned, or an exception that names how the call ended.

Delivery is at least once. `ReceiverApp` recognises duplicates by `eventId` (without one, by `webhook-id`) and the subscription
in the signed body, or, if the body names none, the secret that verified it (of a `SubscriptionRegistry`, the subscription that
it belongs to): in memory, or in the file of a `SQLiteInbox`, which also survives restarts. A process may be killed while a
handler runs, and the handler then runs again: one whose effects must not happen twice stores the `event_id` in its own
database.

The signature proves the sender. It does not make the content, such as a tool's result, trustworthy. It covers
`data.subscription_id`, and not the header `x-mcp-subscription-id`. If a sender names its subscriptions in the header alone, a
receiver of several gives each its own secret.

    verification       verify, with this machine's clock
    published_keys     public keys in place of secrets
    envelopes          Callback and the control envelopes
    outcomes           the exceptions of value_or_raise
    app                ReceiverApp; asgi connects it to servers
    handling           what is acknowledged when: direct_handling, inbox_handling
    sqlite_inbox       the durable inbox; inbox_writer commits what arrives together, inbox_file has the statements,
                       inbox_schema the tables. `ringback listen` keeps its callbacks in the same inbox
    handler_runs       which handlers run at the same time, and the time limit of one
    handler_retries    the pauses between the runs of one that fails, and their end
    deduplicator       recognises copies in memory
    arrived_callbacks  wait_for
    missed_events      reads the event log after a gap and at the start

    event_subscriber        subscribes to any MCP server with Events, refreshes, and polls what was missed
    subscription_registry   … the secrets of its subscriptions, also of those whose id is not known yet
    subscription_results    … what servers answer
    event_requests          … over which connection

`EventSubscriber` and its registry are for agents that subscribe over MCP. Webhooks of the REST API need neither.

The package imports only `ringback.signing` and modules below it; a web framework is imported by `router` and `add_to` alone. A
name is imported with its first use: a function that verifies a request needs neither the inbox nor the subscriber.
"""

import typing

from ringback import lazy_names

if typing.TYPE_CHECKING:
    from ringback.receiver.app import ReceiverApp
    from ringback.receiver.envelopes import Callback, Gap, MalformedBody, Terminated, Verification, parse
    from ringback.receiver.event_requests import EventRequest, EventRequestError, requests_of_session
    from ringback.receiver.event_subscriber import EventSubscriber
    from ringback.receiver.handling import NotReady
    from ringback.receiver.missed_events import FetchSince, LogEvent
    from ringback.receiver.outcomes import (
        CallNotFinished,
        CallRejected,
        CallTimedOut,
        NoValue,
        OutcomeCancelled,
        OutcomeError,
        OutcomeUnknown,
        ResultNotIncluded,
        ToolFailed,
        UpstreamFailed,
    )
    from ringback.receiver.published_keys import PublishedKeys
    from ringback.receiver.sqlite_inbox import InboxUnavailable, SQLiteInbox
    from ringback.receiver.subscription_registry import SubscriptionRegistry
    from ringback.receiver.subscription_results import EventSubscription, PolledEvent
    from ringback.receiver.verification import public_keys_from_jwks, verify
    from ringback.signing.standard_webhooks import VerificationError, VerifiedMessage

__all__ = [
    "CallNotFinished",
    "CallRejected",
    "CallTimedOut",
    "Callback",
    "EventRequest",
    "EventRequestError",
    "EventSubscriber",
    "EventSubscription",
    "FetchSince",
    "Gap",
    "InboxUnavailable",
    "LogEvent",
    "MalformedBody",
    "NoValue",
    "NotReady",
    "OutcomeCancelled",
    "OutcomeError",
    "OutcomeUnknown",
    "PolledEvent",
    "PublishedKeys",
    "ReceiverApp",
    "ResultNotIncluded",
    "SQLiteInbox",
    "SubscriptionRegistry",
    "Terminated",
    "ToolFailed",
    "UpstreamFailed",
    "Verification",
    "VerificationError",
    "VerifiedMessage",
    "parse",
    "public_keys_from_jwks",
    "requests_of_session",
    "verify",
]

_NAMES_BY_MODULE: typing.Final = {
    "ringback.receiver.app": "ReceiverApp",
    "ringback.receiver.envelopes": "Callback Gap MalformedBody Terminated Verification parse",
    "ringback.receiver.event_requests": "EventRequest EventRequestError requests_of_session",
    "ringback.receiver.event_subscriber": "EventSubscriber",
    "ringback.receiver.handling": "NotReady",
    "ringback.receiver.missed_events": "FetchSince LogEvent",
    "ringback.receiver.outcomes": (
        "CallNotFinished CallRejected CallTimedOut NoValue OutcomeCancelled OutcomeError OutcomeUnknown "
        "ResultNotIncluded ToolFailed UpstreamFailed"
    ),
    "ringback.receiver.published_keys": "PublishedKeys",
    "ringback.receiver.sqlite_inbox": "InboxUnavailable SQLiteInbox",
    "ringback.receiver.subscription_registry": "SubscriptionRegistry",
    "ringback.receiver.subscription_results": "EventSubscription PolledEvent",
    "ringback.receiver.verification": "public_keys_from_jwks verify",
    "ringback.signing.standard_webhooks": "VerificationError VerifiedMessage",
}
if not typing.TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__ = lazy_names.import_on_first_use(__name__, _NAMES_BY_MODULE)

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
