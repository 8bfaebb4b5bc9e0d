"""The MCP gateway: a client changes the URL of its MCP server and gets callbacks.

`/mcp/{upstream}` re-exports one upstream under its own names; `/mcp` joins all upstreams. Both eras use the same URL: legacy
clients (2025-11-25 and earlier) in sessions, modern clients (2026-07-28) request by request.

    POST, GET, DELETE
         │
    server ── auth ────────────────── authenticates and authorizes; a forbidden upstream looks like an unknown one
         │
    endpoint_supervisor ───────────── starts a session manager with the first request of its endpoint, and restarts it after a
         │                            failure; until it runs, requests get 503
         │
    session_manager ───────────────── the SDK's manager: HTTP, sessions, JSON-RPC, era. A legacy session is stored and goes on
         │                            after a restart
         │
    session_transport ─────────────── one legacy session: repeats a request whose client lost its stream (`event_ids`)
         ├── own_stream               its notifications; `session_events` keeps them while that stream is away
         │
    session_recorder                  stores what `initialize` agreed on
         │
    capabilities ▸ method_dispatcher ─ middlewares of the SDK's server: the handshake, then the handler of the method
         │
         ├── tools ── upstream_router   resolves a name to an upstream and its tool
         │     │      call_options      reads the call's labels and its callback, in `_meta`, headers and the URL
         │     │      resumed_calls     finds the call that a lost request started
         │     ▼
         │   services.calls.start_call ─ stores the call; from here on it runs even if the client leaves
         │     │
         │   tool_call_responder ──┬─ wait_windows          how long the client waits
         │                         ├─ progress_relay        progress and log messages meanwhile
         │                         ├─ elicitation           2  the tool requests input
         │                         ├─ tasks, legacy_tasks   3  a task
         │                         └─ pending_results       1  the result, or 4  a pending result
         │   cancellation              what a disconnect cancels, and what it does not
         │
         ├── proxied_methods            lists, resources, prompts and completions, through `UpstreamProxyPort`
         ├── tasks, legacy_tasks        tasks/… of both eras
         ├── subscriptions ── change_publisher   notifications of changes
         ├── events ── event_backend    events/… over the event log; `event_types` describes Ringback's own types
         │     event_source             how to subscribe to the end of a call, in results about it
         └── builtin_tools              ringback_…, for clients without tasks, events and webhooks, and to sign in

No header of a client reaches an upstream, and of its `_meta` only the keys that the upstream's `pass_meta` selects.

Beside the drawing:

    incoming_messages            reads and checks the message of each POST, once
    gateway, request_context     what handlers have of the service, and of their request
    tool_export                  an upstream's tool as clients see it
    call_text, task_serializer   a call as models read it, and as a task
    http_options, meta           options in headers and URLs; `_meta` in both directions
    known_clients                what some clients do differently; client_timeouts: how long clients wait
    elicitation_ids, request_state, legacy_task_elicitation   how an answer finds its question, in each era
    session_refusals             what a session manager refuses, in words
    session_notifications, session_activity   notifications to a legacy session, and when it was used last
    live_sessions                the bound on the sessions in memory, over all endpoints
    single_responses             a modern response as one JSON body, or as a stream if the client has to wait
    modern_calls                 a modern tools/call without the SDK's layers around its handler
    request_events               the stream that responds to a request of a legacy session
    response_shortcut            its response without the SDK's router; message_queue: what the two wait on, and the messages
                                 of a legacy session that the SDK's dispatcher has not handled yet
    direct_streams               modern streams of MCP Events, without the SDK's tasks and models
    tool_advice                  advice to models: tools instead of REST paths
    method_spans                 the span of each request, below that of the client or of the HTTP request
    jsonrpc_errors               errors of the service as JSON-RPC errors

A module adds to every endpoint through a `Feature` (see `gateway`). No module here uses the store or an upstream: services do,
and the runner behind its ports.

Where Ringback differs from the specification or goes beyond it, and why:

    outputSchema             the exported schema also allows a pending result; a validating client would refuse one otherwise
    pending result           is one text block, and repeats itself in structuredContent. Its resource_link is only for clients
                             that are known to read one (`known_clients`). Only the template of these links is listed
    closed streams           end a modern request, as the specification says, and leave the call that it started, unless
                             `on_disconnect` is `cancel`: who closed the stream is unknown (`cancellation`)
    legacy sessions          outlive the process: a client needs no new `initialize` after a restart. What was agreed on is
                             stored sealed, as are the log level and the subscriptions. Status notifications of tasks end with
                             the process
    legacy streams           are opened for responses that take longer than 50 ms, or that notifications precede; others are one
                             JSON body (`request_events`). Streams are resumable, also after a restart. Nothing is stored
                             for them: an event id contains the request. A resumed tools/call of an upstream's tool finds its
                             call and starts none. A client that has the response gets a 405 (`session_transport`). Any other
                             request, which includes those of built-in tools, is handled again; with more than 2 KiB of params
                             it is refused (422). Progress and log messages of a lost stream are not repeated
    task-only tools          of an upstream can be called without a task. A client without tasks gets the result or a pending
                             result instead of -32021 or -32601, unless the operator configures `task_only`
    tasks of an upstream     are returned as tasks at once to a client that supports tasks, even if they end in the grace time
    sampling and roots       are offered to no upstream, and refused with a reason: no client may be connected when the upstream
                             requests them, and 2026-07-28 deprecates both
    tools for elicitation    that an upstream lists only for clients that can elicit are listed for these clients, and for
                             clients whose headers or URL name a callback. A legacy upstream over stdio has one process, so its
                             list is the same for all; a tool that asks a client without elicitation gets an error that says so
    waits                    end after 4 s by default and after 45 s at most, except tasks/result of 2025-11-25 and the time
                             that a user takes to answer a question; their streams send a ping every 15 s
    events/…                 are served to legacy clients too, and need neither the client's declaration of the extension nor
                             `Mcp-Name`. The final result of a stream has `resultType` and `_meta`. A legacy stream that its
                             client resumes is handled again with its first cursor
    log messages             reach a client only while it waits for its own call
    batches                  are refused with 400 in every version, though 2025-03-26 demands them: later versions removed them,
                             and no SDK sends one. Of an upstream they are read
    headers and the URL      of a request may have options of Ringback, for clients that cannot set `_meta` (`call_options`);
                             `initialize` and `server/discover` refuse invalid ones, so that a wrong URL is noticed at once
    pages                    every list but tasks/list is one page; a cursor is refused
    cacheScope               is `private` whatever an upstream says: Ringback decides who may see an entry
    unreachable upstreams    keep their last known lists; at `/mcp` an upstream that was never reached is left out. At its own
                             endpoint, its list has the tools that the caller has called there; without any it is an error,
                             unless the upstream requires a login: then the list has `ringback_login`
    logins                   to an upstream are requested by URL elicitation under the name `ringback/login`. An accepted one
                             stays open, because only the login itself lets the call go on; the client waits for it once more
    error -32042             of a legacy upstream (a page has to be opened first) becomes a question of the call, if its client
                             can be asked: 2026-07-28 has retired the error, and the tool has not run. Ringback sends the call
                             again when the question is answered (`runner.drivers.url_elicitation`)
    capabilities             of an upstream are passed on unchanged, but only the methods above are proxied
    HTTP errors              (401, 403, 404, 405, 406, 413, 415, 421, 422) have JSON-RPC errors as bodies. Ringback's errors
                             name the problem in `data.problem`, and tools instead of REST paths (`tool_advice`)

`tasks` and `legacy_tasks` list their differences from the specification of tasks.
"""
