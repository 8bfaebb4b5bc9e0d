"""Ringback: the callback service for MCP. A client calls a tool, disconnects, and is called back with the result.

    client ──POST /v1/calls──▶ services ──tx: call row──▶ 202 {call, resume_token, webhooks}      (the client may vanish)
           ──tools/call /mcp─▶                       └──▶ result | elicitation | task | pending result
                                            │ wake
    runner ──lease──▶ tx: dispatched_at ──▶ driver ──tools/call──▶ MCP server
                                            │ progress, result
                             notifier.record ── ONE tx: call + events + deliveries ──▶ wake
    notifier.dispatcher ──lease──▶ guarded, signed POST ──▶ receiver ──2xx──▶ tx: attempt + delivered
    receiver: verify ▸ dedupe ▸ correlate ▸ POST /v1/resume {resume_token} ──▶ call + result + events since

Three rules carry everything:

1. Commit before responding. The service acknowledges nothing that a `kill -9` could lose.
2. One transaction writes result, events and deliveries. No second queue can disagree with the database.
3. No transaction spans a network request: lease (tx), request, record (tx); the record checks the lease's token.

    cli/          the command line; cli/commands: serve, call, listen, webhooks, deliveries, keys, doctor, mcp, …
    extension/    the MCP callback extension for servers that embed Ringback
    agents/       wakes the runs of agent frameworks
    server        the process: signals, sockets, shutdown
    bootstrap/    the composition root: builds every component from the settings
    client/       the Python client of the REST API
    receiver/     verifies and parses callbacks; an ASGI application for them
    service_database/  opens, migrates, backs up and restores the database without the service
    keyring       reads and rotates the encryption keys
    settings      the RINGBACK_* variables
    http_server/  uvicorn with limits on requests and connections
    ui/           the dashboard: pages over the same services
    api/          the REST API: routes, problem documents, OpenAPI
    mcp_server/   the MCP endpoints, in both eras
    identity/     API keys and OAuth access tokens
    runner/       leases calls and runs each to its end
    janitor       removes what has expired; recovers what was abandoned
    resealing     encrypts stored secrets anew with the newest key
    supervisor    restarts workers that fail
    schemas/      the JSON forms that REST, MCP and the extension share
    upstreams/    the configured MCP servers: connections, sessions, catalogs, subscriptions
    storage/      the column codec, the rows, and the SQL of the SQLite and the PostgreSQL store
    services/     the use cases, in packages by noun: calls, webhooks, events, deliveries, logins, access, limits, …
    notifier/     records events, fans them out and delivers them
    telemetry/    log lines, traces and their metrics
    leadership    gives a duty to one node at a time
    measurements  what this process has counted, for its metrics
    attended_calls  the ends of calls whose client waits in this process
    post_commit   hands new rows to the workers of this process once their transaction is committed
    admission     lets requests that start calls go before background work
    start_turns   lets the starts of a principal with many unfinished calls take turns with the work for them
    waits         waiting for the first of several events
    loop_turns    spreads work over turns of the event loop, fairly between its owners
    domain/       values, rules, and the ports that storage implements
    protocol/     MCP on the wire, for the service and for the durable caller
    freed_memory  returns freed memory of large results to the operating system
    private_sqlite  the SQLite files of the libraries and the listener
    asyncio_tasks  ends tasks, also within a scope of anyio
    key_locks     one lock for each key
    backoff       the pause before the next attempt
    lazy_names    public names that are imported with their first use
    amounts       how numbers of upstreams are written for people and models
    suggestions   a known name in the place of an unknown one
    log_context   the ids that each log line of a request, a call or a delivery has
    signing/      signatures, secrets and sealing

Imports point down only; modules joined by | do not import each other (pyproject.toml holds the contract):

    __main__  >  cli  >  extension | agents  >  server  >  bootstrap | client | receiver  >  service_database  >  keyring
      >  settings  >  http_server  >  ui  >  api | mcp_server | identity | runner | janitor | resealing | supervisor
      >  schemas | upstreams | storage  >  services  >  notifier  >  telemetry | leadership | measurements
      >  admission | attended_calls | post_commit | waits  >  start_turns  >  domain  >  protocol
      >  amounts | asyncio_tasks | backoff | freed_memory | key_locks | lazy_names | log_context
      | loop_turns | private_sqlite | signing | suggestions
"""

__version__ = "0.1.0"
