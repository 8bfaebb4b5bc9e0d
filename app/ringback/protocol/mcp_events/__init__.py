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

The values (`backend`, `descriptors`, `errors`, `grants`, `occurrence`, `subscription_key`) import no framework: services use
them. Only `requests`, and with it `endpoint`, imports pydantic.
"""
