"""What the service's drivers and the durable caller both know of MCP on the wire.

    tasks                      tasks of 2026-07-28 and of 2025-11-25: how a server reports them, how to poll them
    sessions                   negotiated protocols, legacy sessions and the positions of their streams
    resumable_requests         requests of a legacy session whose response another connection can read
    legacy_session_transport   the HTTP transport of a session that outlives its connections
    request_envelope           the `_meta` and the headers of a modern request
    mcp_events                 MCP Events: the five methods, their values, checks and errors
    keepalive                  TCP probes, for connections without a read timeout
    http_failures              HTTP failures as JSON-RPC errors, which do not end a session of the SDK
    transport_errors           those errors, and the size limits of messages
    cancel_keys                how a client of Ringback cancels a waiting tools/call over HTTP
    question_ids               ids of questions to the clients of legacy sessions
    builtin_tools              names of the tools that Ringback adds
    upstream_logins            names of upstreams, and how a person signs in to one
    errors                     why a request failed, and whether the tool may have run

Of Ringback this package may import only `backoff` and `signing`. `runner.drivers` and `upstreams` use it in the service, and
`client.durable.direct` in an agent's process. Modules that need the MCP SDK import it themselves, so that importing
`ringback.client` does not.
"""
