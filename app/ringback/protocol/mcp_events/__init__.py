"""MCP Events on the wire: the five methods `events/…`, their values, and their errors. No transport, no store.

    names                the methods, notifications, `_meta` keys and capabilities
    errors               the errors by name, with the codes of both specifications
    descriptors          an event type as events/list describes it
    occurrence           one event as all three delivery modes send it
    requests             the params of the five methods (pydantic)
    subscription_key     canonical arguments and the deterministic subscription id
    callback_url         which callback URLs are well formed
    grants               how long a subscription is granted
    backend              what a server provides: event types, pages of its log, subscriptions
    endpoint             the five methods over a backend: the order of the checks, the results and the frames

    mcp_server.events ─────┐                        ┌── list_descriptors, find_descriptor, implied_arguments
    extension.events ──────┼──▶ EventEndpoint ──▶ EventBackend ── poll_occurrences, follow_occurrences
                                                    └── subscribe, unsubscribe

Two specifications differ in their error codes: the design sketch, which ChatGPT and other clients follow, and SEP-3415. A
request that declares the extension in its client capabilities gets the codes of the SEP; any other request gets those of the
sketch.

Where Ringback differs from the specification or goes beyond it, and why:

    capability               stands in `extensions` and at the top level, in `server/discover` and in `initialize`: the AI SDK
                             reads only the top level, ChatGPT and the AI SDK also use sessions, which SEP-3415 does not define
    client's declaration     is not required, nor is `Mcp-Name`: no client that is in use sends them
    error codes              of SEP-3415 go to a request that declares the extension, those of the sketch to all others. The
                             message begins with the error's name, whatever the code
    events/list              is one page; a cursor is refused
    delivery                 is webhook, push and poll for every event type, because all three read one durable log; so no
                             declared mode is ever unsupported, and every type replays
    events of an upstream    are in this log too, and reach a webhook, a stream or a poll whatever the upstream itself offers.
                             A changed schema of such a type ends no subscription
    events/poll              waits if `timeoutMs` or `waitMs` says so. Each is in one draft only
    events/stream            has no SSE comments, which the official scenarios count as a fault, and the SDK would send after
                             15 s. Its heartbeats come between events too
    the final result         of a stream has `resultType` and `_meta` (SEP-3415); the sketch has `_meta` alone. The official
                             scenarios allow both
    events/subscribe         takes an absent `mode` for `webhook`; it takes base64 with and without padding
    verification             is the handshake only. A receiver's well-known document is one of several allowed ways and is not
                             read
    events/unsubscribe       accepts `mode`, which the AI SDK sends. It succeeds for a key that lived within the last 30 days,
                             which ChatGPT expects, and answers NotFound for a key that this principal never had, as the
                             specification does
    webhook-id               is the eventId, which the AI SDK requires. A setting makes it an id of the message, for clients
                             that declare the extension
    Retry-After              of a receiver is honoured, which no specification mentions
    410                      ends one delivery and keeps the subscription; Standard Webhooks would end the subscription
    events of Ringback       are named `call.…` and `upstream.…`: the prefix `mcp.` is reserved

The tests list every demand with its test; `ringback check-server` checks most of them at any server.

The values (`backend`, `descriptors`, `errors`, `grants`, `occurrence`, `subscription_key`) import no framework: services use
them. Only `requests`, and with it `endpoint`, imports pydantic.
"""
