"""Calls that go on after their client was answered: the pending result, and the resource `ringback://calls/{id}` it points to.

A pending result is for clients that know nothing but tool results, so it says in words what runs and what to do. The resource
reads as JSON, can be subscribed to, and holds the result once there is one.
"""

from collections.abc import Sequence
from typing import Any, Final

from ringback.domain import jsontext
from ringback.domain.call import RESOURCE_PREFIX, Call, Status, resource_uri
from ringback.domain.errors import CallExpired, NotFound
from ringback.mcp_server import meta
from ringback.mcp_server.call_words import call_details
from ringback.mcp_server.exchange import Exchange
from ringback.mcp_server.gateway import Gateway, Result
from ringback.mcp_server.tool_shape import PENDING

TEMPLATE: Final[dict[str, Any]] = {
    "uriTemplate": f"{RESOURCE_PREFIX}{{call_id}}",
    "name": "ringback_call",
    "title": "Ringback call",
    "description": "A tool call that outlives its request, as JSON: status, progress, and the result once there is one.",
    "mimeType": "application/json",
}


def is_pending_uri(uri: str) -> bool:
    return uri.startswith("ringback://")


def result(call: Call) -> Result:
    """A CallToolResult that is no error: the tool is at work."""
    told = {"call_id": call.id, "status": str(call.status), "resource_uri": resource_uri(call)}
    link = {
        "type": "resource_link",
        "uri": resource_uri(call),
        "name": call.id,
        "title": f"{call.tool} of {call.upstream}",
        "description": "Becomes the tool's result.",
        "mimeType": "application/json",
    }
    content = [{"type": "text", "text": "\n".join(_words(call))}, link]
    return meta.labelled({"content": content, "structuredContent": {PENDING: told}, "isError": False}, call)


async def read(gateway: Gateway, exchange: Exchange, uri: str) -> Result:
    """The resource as it is now; a call of somebody else's is as unknown as one that never was."""
    try:
        call = await gateway.calls.get(exchange.caller, uri.removeprefix(RESOURCE_PREFIX))
    except CallExpired as expired:
        raise NotFound(expired.detail, uri=uri) from None
    except NotFound:
        raise NotFound("No call of yours has this URI. List yours with ringback_list_calls.", uri=uri) from None
    stored = await gateway.stored_result(exchange.caller, call)
    text = jsontext.dumps(call_details(call, stored)).decode()
    contents = {"uri": uri, "mimeType": "application/json", "text": text, "_meta": meta.labels(call)}
    return {"contents": [contents], "ttlMs": 0, "cacheScope": "private", "_meta": meta.labels(call)}


def _words(call: Call) -> Sequence[str]:
    return [
        f"The tool '{call.tool}' of '{call.upstream}' is not done yet. Do not call it again: it goes on as call {call.id}.",
        _next_step(call),
    ]


def _next_step(call: Call) -> str:
    if call.status is Status.INPUT_REQUIRED:
        return f"It asks for input: read {resource_uri(call)} for the questions, and answer them with ringback_answer_call."
    return (
        f"Its result will be at {resource_uri(call)}. To wait for it, use ringback_wait_for_call; if somebody is rung when it "
        "ends, you need not wait."
    )
