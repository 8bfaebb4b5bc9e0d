"""Extensions of your own MCP server: `Callbacks` for its tool calls, and `Events` of its own (see `ringback.extension.events`).

`Callbacks` reports tool calls to Ringback, which sends callbacks for them. With the MCP SDK:

    from ringback.extension import Callbacks
    callbacks = Callbacks.reporting("https://ringback.example", api_key="rbk_…", upstream="reports", tools={"build_report"})
    server = MCPServer("reports", extensions=[callbacks], lifespan=callbacks.lifespan)

With FastMCP 4:

    from ringback.extension.fastmcp import Callbacks
    callbacks = …  # the same
    server.add_extension(callbacks)

`Callbacks.embedded(upstream="reports", dev=True)` needs no service, for a first try. A call of a listed tool, and any call
whose `_meta` has a callback, becomes a Ringback call:

    "_meta": {"ringback/callback": {"url": "https://agent.example/callback", "secret": "whsec_…"},
              "ringback/correlationId": "c1", "ringback/clientSessionId": "s1"}

    tools/call ──▶ callbacks ──▶ the tool ──▶ callbacks ──▶ the tool's result, unchanged, plus our ids in its `_meta`
                      │ start                  │ end
                      └───▶ report_outbox ◀────┘
                                   │ one channel a call; each report is complete, so only the newest is sent
                    ┌──────────────┴───────────────┐
             service_backend                embedded_backend
             POST /v1/calls/report          a Ringback in this process: committed before the response

    callbacks            the extension for the SDK
    fastmcp              the extension for FastMCP; imported by its users only
    tool_call_reporting  which calls are reported, and what the client gets
    callback_request     what a client's `_meta` asks for
    call_reporter        reports the start and end of one call, also across input rounds (modern)
    report_outbox        pending reports and their retries

It runs on asyncio. Put it last among the server's extensions: an extension that turns calls into tasks then wraps it, and the
reported end is the tool's own.
"""

try:
    from ringback.extension.callbacks import Callbacks
    from ringback.extension.events import Events
except ModuleNotFoundError as missing:
    raise ImportError('ringback.extension needs the service\'s packages: pip install "ringback[server]"') from missing

__all__ = ["Callbacks", "Events"]
