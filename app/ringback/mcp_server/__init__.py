"""The MCP gateway: change the URL, get callbacks.

`/mcp/{upstream}` passes one upstream on with its own names, `/mcp` joins all of them. Clients of both eras are served at the
same URL: those of before 2026-07-28 in sessions, those of today request by request.

    POST, GET, DELETE
         │
    endpoints ── auth ─────────────── who asks, and may they; unknown and forbidden upstreams are one
         │
    the SDK's session manager ─────── HTTP, sessions, JSON-RPC, which era; one for each endpoint, made when it is first needed
         │                            and made anew when it has failed (keeping); meanwhile its requests are answered 503
         │
    greeting ▸ dispatch ───────────── middlewares of the SDK's server: what we are, and who handles this method
         │
         ├── tools ── routes          a name leads to an upstream's tool
         │     │      meta, callbacks what the client says of the call
         │     ▼
         │   services.calls.start ─── stored, before anything else; from here on it runs whatever becomes of the client
         │     │
         │   answers ──┬─ relay       progress and messages while the client waits
         │             ├─ questions   2  what the tool asks
         │             ├─ tasks, legacy_tasks   3  a task
         │             └─ pending     1  the result, or 4  where it will be found
         │   disconnects              what a client cancels by leaving, and what it does not
         │
         ├── passthrough ── routes    lists, resources, prompts, completions: asked of `domain.upstreams.Passage`
         ├── tasks, legacy_tasks      tasks/…, of both generations
         ├── listening ── news        what is told unasked
         └── own_tools                ringback_…, for clients that have none of this

A module adds to every endpoint by a `Feature` (`gateway`). None of them talks to the store or to an upstream: services do, and
the runner behind its ports.

Where we differ from the specification, or go beyond it, and why:

    outputSchema             the exported one also allows a pending result, which a client that validates would refuse otherwise
    pending result           its resource_link is in no list; the template of all such resources is
    closed streams           of 2026-07-28 end the call, as the text says; but not for a request that takes tasks or speaks of
                             us, whose client knows that a call outlives its stream
    task-only tools          of an upstream are called as any other. A client without tasks gets the result or a pending one,
                             not -32021 or -32601, unless the operator says `task_only`
    tasks of an upstream     are tasks at once for a client that takes them, also when they end within the grace time
    sampling and roots       are offered to no upstream: when it asks, there may be nobody there
    messages (logging)       reach a client while it waits for a call of its own, and no other
    pages                    all lists come whole; a cursor is refused
    cacheScope               is `private` whatever an upstream says: who may see what is decided here
    an upstream that is away is listed as it was last; at `/mcp` one that was never reached is left out
    capabilities             of an upstream are told on as they are, but only the methods above are passed on
    errors of the door       (401, 403, 404, 413, 421) are problem documents, as over REST. JSON-RPC errors of ours carry the
                             problem's name in `data.problem`

What the specification asks of tasks, and what of it is answered otherwise, stands in `tasks` and `legacy_tasks`.
"""
