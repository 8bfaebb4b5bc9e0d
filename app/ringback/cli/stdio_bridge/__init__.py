"""`ringback mcp`: forwards MCP messages between standard input and output and a running service, in both eras.

    client ──line──▶ stdio_server ──▶ bridge ──▶ forwarded_request ──POST──▶ endpoint ──▶ Ringback
           ◀──line──                         ◀──                   ◀──────

    bridge             one task for each message of the client
    forwarded_request  one request until its response: sends it again when the response was lost
    event_stream       an events/stream, which continues at its last cursor
    retries            how often, and for how long
    session            a legacy session: begins again when the service no longer knows it
    session_stream     the session's own stream (GET), reopened whenever it ends
    server_requests    questions of the service, under ids that stay unique over sessions
    call_cancellation  cancels the call of a request whose stream says nothing about it
    client_output      writes messages to the client
    unreadable_lines   the response to a line that is not a message
    request_headers    the headers of HTTP, from the messages (MCP 2026-07-28, Streamable HTTP, Request Metadata)
    started_service    the endpoint of a service that the bridge starts
    endpoint           the service over HTTP
    responses          … its responses, and what a failure says about the request

Why the SDK's HTTP transport (2.3.0) is not used: it reports a lost session or connection as the end of a request, and cannot
begin its session again. The SDK's messages, its stdio transport and its rules for headers are used.

A request may be sent again, because the service does nothing twice: the bridge adds a `ringback/idempotencyKey` to each
tools/call that has none, so that a repeated one gets the call that it started, and every other method reads, or sets what it
set before. Other params and all results are unchanged.
"""

from ringback.cli.stdio_bridge.bridge import run_bridge as run_bridge
from ringback.cli.stdio_bridge.endpoint import EndpointConfig as EndpointConfig
from ringback.cli.stdio_bridge.started_service import StartedService as StartedService
