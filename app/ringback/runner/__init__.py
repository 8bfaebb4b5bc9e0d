"""Everything between a queued call and its end: the upstreams, the connections to them, and the runner that drives calls.

    config      mcpServers JSON ──▶ UpstreamConfig
    upstreams   all of them, opened, closed and configured anew; the catalog, and sessions to call in (reloading)
      catalog      what can be called; arguments against inputSchemas (arguments, bounded_schema)
      connection   one for each upstream: keeps a link up, backs off, retires it
        shelf        what it said of itself and listed last, also after a restart
        conversation what one call needs of it, whichever link serves (messages: its log messages)
        principals   a link for each principal, where they must not share one
        problems     why an upstream cannot be reached, and what to do about it
        opening      a link for all calls, for one call, or into a session that is there already
        link         one live session, in one task: raw requests, its end
          dispatcher   what the upstream tells and asks by itself
          stateful     a session of before 2026-07-28: its name, and reading on where an answer got lost
          listing      all pages of a list
          reading      messages out of bytes: bounded, then decoded, repaired where that is possible
          large_results  large results, decoded once and handed past the SDK
          faults       counts of what an upstream sends that it should not
          transport    HTTP that raises nothing: what goes wrong is told, as what it is (failures)
          event_stream   server-sent events, checked before the SDK reads them
          http_transport   HTTP/1.1 for the SDK's client: open connections, used again (http_connection: one of them)
          tokens       what authorises us, by client_credentials
          session_transport   sessions that outlive their connections
          pipe         MCP over a child's standard input and output
          lines        bytes cut into bounded lines
          notices      notifications, at a bounded rate
          child        one child process, which ends with the service
          child_records  children in small files, so that the next start ends what is left of them
          child_watch  pings a shared child, and replaces a frozen one (`domain.liveness`)
          stdio        a child's standard error, read and bounded
      passage      what is passed on besides calls: profiles, lists, requests
        watching     resources that somebody watches: one subscription for each
        changes      what upstreams tell unasked, to whoever listens in this process
      live         what upstreams tell about running calls, to whoever waits for one
    watchman    what upstreams tell unasked ──▶ `upstream.changed` events
    drivers     carry one call over a session to its end
    runner      leases queued calls ──▶ drive: one leased call to its end, or to where it is parked or handed back
      leasing      what is queued, also in the unit that starts a call ──▶ begun once that is committed
      desk         the call under its lease: every change of it, fenced ──▶ progress, coalesced
    failures    the kinds of failure, by the only question that matters: may the tool have run?

Who may work on a call, and who may write it down:

    holder      asked for the lease ──────────── trusted ───────────────▶│── margin ──│
                     │    heartbeat, heartbeat, …: each begins it anew   │ stops its work, tells nobody
    store            └─ grants: owner, token, until ─────────────────────────────────▶ until ── grace ──▶ janitor: recovery
    every write         in one transaction: is the row still running, and is the token still mine?

The store's clock grants a lease and takes it back. The holder counts from the moment before it asked, by its own clock that
never goes backwards, and stops a margin earlier; so where a lease is given away, its last holder has stopped, unless it was
frozen. For a frozen one there is the token: it is new with each lease, and a write that does not find its own changes nothing.
A frozen holder's request may still be running upstream; what becomes of its call is never decided by two.

How a failure becomes an outcome, and where it is told apart:

    nobody listens, or the session is forgotten   transport: NOT_SENT, FORGOTTEN   once more on the next link, then `rejected`
    … or our credentials are not taken            transport: UNAUTHORISED, …       the same
    bytes went out, nothing came back             transport: LOST; SDK: closed     read on or asked again by the handle,
                                                                                   `unknown` without one
    … and the session is gone                     session_transport: GONE          `unknown`
    an answer that is none                        transport: NO_ANSWER             `upstream_error`
    a JSON-RPC error                              the upstream's own               `upstream_error`, kept as it came

The SDK's contexts belong to the task that enters them, so each link is one task; other tasks only send requests through it.
Nothing that a caller sent to Ringback as a header reaches an upstream, and of `_meta` only what it is configured to be told. A
child sees only the few environment variables that the SDK deems safe and those of its own configuration.
"""
