"""Talks to MCP servers: keeps their connections open and offers sessions, lists, requests and change notifications.

    registry ──▶ connection_directory   finds the connection that serves a principal
      │             └──▶ owned_connections   one for each principal, if the upstream's credentials are each principal's own;
      │                                      `owned_upkeep` closes unused ones
      ├──▶ connection_factory   makes connections; `connection_tasks` runs and closes them
      ▼
    connection ──▶ handshake ──▶ session ──▶ session_dispatcher ──▶ transports
        │                           │             ├──▶ elicitation_router   finds the call that asks
        │                           │             ├──▶ received_streams     notifications of requests that stay open
        │                           │             └──▶ task_progress        progress of tasks, after their creation
        │                           ├──▶ legacy_session
        │                           └──▶ stream_opener   opens requests that stay open
        ├──▶ handshake_order     chooses the protocol that the next handshake begins with
        ├──▶ session_starter     starts further sessions, each in a task of its own
        ├──▶ session_selection   selects the session of a call
        │      ├──▶ call_session        requests of one call, and its log messages
        │      └──▶ principal_sessions  a session for each principal
        ├──▶ child_monitor       replaces a frozen child process
        ├──▶ silence_monitor     notices that an upstream over HTTP does not respond
        ├──▶ login_gate          waits for a login of the owner of the credentials, and notices another one
        ├──▶ running_calls       counts the calls that run on it
        └──▶ catalog             cached lists, and the check of arguments before a call
    proxy           lists and requests that the MCP gateway passes through; how many one principal has there at once
    principal_units  writes for many principals, a unit of work for each
    subscriptions   list and resource changes, for gateway clients and webhooks
    events          events of upstreams that offer MCP Events
    oauth           access tokens for upstreams, and logins with a browser
    json_schema     validates values against untrusted schemas, in bounded time
    config          the `mcpServers` file
    own_address     the entries that name this service itself
    instances       finds upstreams that lead back to it, at the handshake
    skipped         its entries that are not served, with the reason

    upstream_spans  the span of each request, and its context on the way upstream
    dispatch_records  records that a tools/call waits before it goes out, or was refused for its token
    server_fingerprints  which server a name stands for: handles of calls go to no other one
    session_ports   what drivers see of a session
    errors          why a request or a connection failed; `connection_problems` names causes for users,
                    `connection_status` has the state of one connection
    faults          counts invalid messages of an upstream
    message_flow    limits the work that the messages of an upstream cause
    notification_hub  progress and log messages of running calls, for listeners in this process

The runner imports this package; this package never imports the runner.

Which principals share a connection (`"credentials"` of the configuration):

    shared      all. The connection is opened at the start and stays open
    principal   none. The first use by a principal opens a connection with its tokens, its lists and its notifications. Events
                of such an upstream (MCP Events) are not followed, because one following serves all principals

A connection belongs to one login (`oauth.followed_login`). Another login of its owner, a sign-out or the owner's erasure
replaces it, with its cached and stored lists; calls that run on it end there.

Which calls share a session of a connection, and which session may ask (`session_selection`, `elicitation_router`):

    modern              one session for all calls: a question is part of a response
    legacy, over HTTP   the shared session declares no elicitation. A call that accepts input runs in a session of its
                        principal, which declares it and keeps its state from call to call. A question reaches one principal
    legacy, stdio       one child for all calls, which declares elicitation. A question is passed on only if it is certain which
                        call asks; otherwise it is refused with a reason
    sampling, roots     are declared to no upstream and refused with a reason

What holds for every session:

    one task            opens, serves and closes a session: the contexts of the SDK are left in the task that entered them
    headers             of a caller reach no upstream: the HTTP client sends its own and the configured ones
    `_meta`             of a caller passes as `pass_meta` configures it, without reserved keys and without `ringback/` keys
    environment         a child gets the few variables that the SDK considers safe, the configured `env` and a mark by which a
                        later start finds a leftover child; no other variable of Ringback, so none of its secrets
"""
