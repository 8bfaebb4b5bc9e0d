"""Everything between a queued call and its end: the upstreams, the connections to them, and the runner that drives calls.

    config      mcpServers JSON ──▶ UpstreamConfig
    upstreams   all of them, opened and closed together; the catalog, and sessions to call in
      catalog      what can be called; arguments against inputSchemas (arguments)
      connection   one for each upstream: keeps a link up, backs off, retires it
        link         one live session, in one task: negotiation, raw requests, its end
          listing      all pages of tools
          transport    HTTP that raises nothing: what goes wrong is told, as what it is (failures)
          pools        connections, as many as there are calls
          stdio        a child's standard error, read and bounded
    drivers     carry one call over a session to its end; `plain` is the first
    runner      leases queued calls ──▶ drive: one leased call to its end ──▶ progress, coalesced
    failures    the kinds of failure, by the only question that matters: may the tool have run?

How a failure becomes an outcome, and where it is told apart:

    nobody listens, or the session is forgotten   transport: NOT_SENT, FORGOTTEN   once more on the next link, then `rejected`
    bytes went out, nothing came back             transport: LOST; SDK: closed     `unknown`
    an answer that is none                        transport: NO_ANSWER             `upstream_error`
    a JSON-RPC error                              the upstream's own               `upstream_error`, kept as it came

The SDK's contexts belong to the task that enters them, so each link is one task; other tasks only send requests through it.
Nothing that a caller sent to Ringback as a header reaches an upstream, and a child sees only the few environment variables that
the SDK deems safe and those of its own configuration.
"""
