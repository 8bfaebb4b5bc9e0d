"""Calls on an MCP server from this process, with the MCP SDK.

    server           how to reach the server
    calls            starts, follows, cancels and answers a call, by what the server offers
    tasks            tasks of 2026-07-28
    legacy_tasks     tasks of 2025-11-25
    streams          resumable streams of legacy sessions
    rounds           modern calls without a task: a response, or questions and another round
    connection       one connection: the process of a command, negotiation, requests, and rejoined sessions
    questions        questions that a legacy server asks on the connection
    http_transport   confines an HTTP failure to its request
    matching_events  leaves out responses to other requests from its event stream
    completions      responses and failures as the end of a call

Each connection serves one call. `protocol` has what this package shares with the service.
"""
