"""The service's advice names REST requests. At a terminal, the same advice names commands."""

import re
from typing import Final

_ID: Final = r"([^\s/?.,]+)"
_COMMANDS: Final = tuple(
    (re.compile(pattern), command)
    for pattern, command in (
        (rf"See it: GET /v1/upstreams/{_ID}/tools", r"See it: ringback tools \1 --json"),
        (rf"GET /v1/upstreams/{_ID}/tools", r"ringback tools \1"),
        (rf"POST /v1/upstreams/{_ID}/login", r"ringback upstreams login \1"),
        (r"GET /v1/upstreams\b", "ringback upstreams"),
        (rf"DELETE /v1/calls/{_ID}\?cancel=true", r"ringback calls erase \1 --cancel"),
        (r"DELETE /v1/calls/\{id\}", "ringback calls erase CALL_ID"),
        (r"Name one principal instead of '\*'", "Name one principal with --principal instead of --all-principals"),
        (r"send the same request with \?cancel=true", "repeat the command with --cancel"),
        (r"send a `callback` with the call", "give --callback"),
        (r"GET /v1/calls/\{id\}\?wait_seconds=\d+", "ringback join CALL_ID"),
        (rf"GET /v1/calls/{_ID}\?wait_seconds=\d+", r"ringback join \1"),
        (rf"GET /v1/calls/{_ID}/result", r"ringback join \1"),
        (rf"GET /v1/calls/{_ID}", r"ringback calls show \1"),
        (r"GET /v1/calls\b", "ringback calls"),
        (r"GET /v1/events\b", "ringback events"),
        (rf"PUT /v1/event-types/{_ID}", r"ringback events declare \1"),
        (r"GET /v1/webhooks\b", "ringback webhooks list"),
        (rf"PUT /v1/webhooks/by-name/{_ID}", r"ringback webhooks add URL --name \1"),
        (r"DELETE /v1/webhooks/\{id\}", "ringback webhooks remove WEBHOOK_ID"),
        (rf"DELETE /v1/webhooks/{_ID}", r"ringback webhooks remove \1"),
        (rf"POST /v1/webhooks/{_ID}/verify", r"ringback webhooks verify \1"),
        (rf"PATCH /v1/webhooks/{_ID} \{{\"state\": \"active\"\}}", r"ringback webhooks enable \1"),
        (r"POST /v1/webhooks\b(?!/)", "ringback webhooks add URL"),
        (r"GET /v1/deliveries\b", "ringback deliveries list"),
        (r"GET /v1/portal-links\b", "ringback portal-link list"),
        (r"DELETE /v1/portal-links/\{id\}", "ringback portal-link delete LINK_ID"),
        ("Send your API key: 'Authorization: Bearer rbk_…'", "Set your API key: RINGBACK_API_KEY or --api-key"),
        (r"expire earlier: expires_in_seconds", "expire earlier: --expires"),
        (r"with `since` for example", "with --since for example"),
        (
            r"Send exactly one of these: since, cursor, or dead: true",
            "Give exactly one of these: --since, --cursor or --dead",
        ),
        (
            r"Send at least one filter: client_session_id, correlation_id, upstream, tool or status",
            "Give at least one filter: --session, --correlation, --upstream, --tool or --status",
        ),
    )
)
"""The first match of a place wins. Advice without a command of its own stays as it is."""


def name_commands(text: str) -> str:
    for pattern, command in _COMMANDS:
        text = pattern.sub(command, text)
    return text
