"""Events of your own MCP server: clients list, poll, stream and subscribe to them (MCP Events).

    from ringback.extension import Events
    events = Events.embedded("events.db")
    server = MCPServer("orders", extensions=[events], lifespan=events.lifespan)

    @events.type("order.shipped", description="An order has left the warehouse.")
    class OrderShipped(BaseModel):
        order_id: str
        carrier: str

    await events.emit(OrderShipped(order_id="o1", carrier="x"))                    # everybody may see it
    await events.emit(OrderShipped(order_id="o1", carrier="x"), principal="alice")  # only alice

With FastMCP 4: `from ringback.extension.fastmcp import Events`, then `server.add_extension(events)`.

    events/list, poll, stream, subscribe, unsubscribe
         │
    methods ── protocol.mcp_events.endpoint      the checks, the results and the frames; the same as at Ringback's gateway
         │
    log_backend                                  descriptors, pages of the log, subscriptions
         │
    an embedded Ringback (embedded_log)          SQLite: log, webhooks, retries, verification, SSRF guard
         ▲                                       one log for all principals (shared_log)
         │ emit: committed before it returns
    served_events ── event_types                 what the author declares and emits

    event_log       what `Events` needs of a log
    service_log     a Ringback service as the log: event_outbox sends what is emitted, service_methods forwards the methods
    sdk, fastmcp    the extension classes
    principals      who asks, and whose events these are

Who sees an event. A principal is the subject of the access token (`principal_of` changes that). `emit(…, principal=…)` stores
the event for one principal, `emit(…)` for everybody. Both are stored once, in one log, and the subscriptions that match get a
delivery each. A server without authentication offers polls and streams, whose clients see events for everybody; with
`dev=True` also webhooks.

An event finds its subscriptions through an index of their arguments in memory (subscription_index), so its cost grows with
those that match. A `matches` function of the author runs for each live subscription of its type, at most
`shared_log.SUBSCRIPTIONS_OF_TYPE_MAX`, in the transaction of the event.

Where this differs from the specification: over legacy HTTP sessions the SDK sends an SSE comment every 15 s on each stream. It
does not cancel a stream whose client closes its request, so that stream ends after 15 minutes. A server with
`json_response=True` refuses events/stream. `notifications/events/list_changed` is never sent: the types of a server do not
change while it runs.
"""

from ringback.extension.events.sdk import Events

__all__ = ["Events"]
