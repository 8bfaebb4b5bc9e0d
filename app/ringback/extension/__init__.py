"""Callbacks for an MCP server of your own, built on the MCP SDK: what its tools answer is rung out, too.

    callbacks = Callbacks.reporting("https://ringback.example", api_key="rbk_…", upstream="reports", tools={"build_report"})
    server = MCPServer("reports", extensions=[callbacks], lifespan=callbacks.lifespan)

A call of a marked tool, and any call whose `_meta` asks for it, becomes a call at a Ringback:

    "_meta": {"ringback/callback": {"url": "https://agent.example/callback", "secret": "whsec_…"},
              "ringback/correlationId": "c1", "ringback/clientSessionId": "s1"}

    tools/call ──▶ callbacks ──▶ the tool ──▶ callbacks ──▶ the answer, as it is, plus our ids in its `_meta`
                      │ "it runs"                │ "it ended so"
                      └────────▶ outbox ◀────────┘
                                   │ one line a call; each report says all that is known, so the newest is enough
                    ┌──────────────┴───────────────┐
                reporting                       embedded
                POST /v1/calls/report           a Ringback in this process: committed before the answer

    callbacks   the extension: what is marked, what is told, what the client gets
    asking      what a client's `_meta` says
    telling     one call: that it runs, and how it ended
    rounds      questions in the middle of a call (2026-07-28), which make several requests one call
    outbox      reports on their way, and tried again

It runs on asyncio. Put it last among the server's extensions: one that turns calls into tasks then wraps it, and what is told
is the tool's own end.
"""

from ringback.extension.callbacks import Callbacks

__all__ = ["Callbacks"]
