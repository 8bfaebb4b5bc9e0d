"""The pending result, and the resource `ringback://calls/{id}` that it names.

A pending result is for clients that support only tool results. Many show their model one text block, or structuredContent
instead of all text, and fail on blocks that they do not know. So one text block says which call runs and what to do next,
structuredContent says the same, and a link to the resource follows only for a client that reads it (`known_clients`). The
resource is JSON, can be subscribed to, and contains the result once the call has ended.
"""

from typing import Any, Final

from ringback.domain import jsontext
from ringback.domain.call import CALL_RESOURCE_URI_PREFIX, Call, call_resource_uri
from ringback.domain.call_resumes import ResumeSurface
from ringback.domain.errors import CallExpired, NotFound
from ringback.domain.upstreams import UpstreamInfo
from ringback.domain.wait_words import describe_pause
from ringback.mcp_server import meta
from ringback.mcp_server.call_text import describe_call, get_labels, get_pending_step, render_pending_text
from ringback.mcp_server.gateway import Gateway, Result
from ringback.mcp_server.request_context import RequestContext
from ringback.mcp_server.tool_export import PENDING_KEY
from ringback.services.limits.unread_responses import reserve_parsed_result

CALL_RESOURCE_TEMPLATE: Final[dict[str, Any]] = {
    "uriTemplate": f"{CALL_RESOURCE_URI_PREFIX}{{call_id}}",
    "name": "ringback_call",
    "title": "Ringback call",
    "description": "A tool call that runs in the background, as JSON: status, progress, and the result once it has ended.",
    "mimeType": "application/json",
}


def is_ringback_uri(uri: str) -> bool:
    return uri.startswith("ringback://")


def build_pending_result(
    call: Call, upstream: UpstreamInfo | None, *, has_resource_link: bool, is_error: bool, is_paused: bool = False
) -> Result:
    """A CallToolResult that says that the tool has not finished; `is_error` if a client would mistake it for the tool's own."""
    step = get_pending_step(call)
    pending = {
        "call_id": call.id,
        "status": str(call.status),
        "resource_uri": call_resource_uri(call),
        **get_labels(call),
        "next_step": f"{describe_pause(call.upstream)} {step}" if is_paused else step,
    }
    content = [{"type": "text", "text": render_pending_text(call, upstream, is_paused=is_paused)}]
    if has_resource_link:
        content.append(_build_resource_link(call))
    return meta.with_call_meta(
        {"content": content, "structuredContent": {PENDING_KEY: pending}, "isError": is_error}, call
    )


def _build_resource_link(call: Call) -> dict[str, Any]:
    return {
        "type": "resource_link",
        "uri": call_resource_uri(call),
        "name": call.id,
        "title": f"{call.tool} of {call.upstream}",
        "description": "Contains the tool's result once the call has ended.",
        "mimeType": "application/json",
    }


async def read_call_resource(gateway: Gateway, context: RequestContext, uri: str) -> Result:
    """The resource as it is now; another principal's call is as unknown as one that does not exist."""
    try:
        call = await gateway.calls.get_call(context.caller, uri.removeprefix(CALL_RESOURCE_URI_PREFIX))
    except CallExpired as expired:
        raise NotFound(expired.detail, uri=uri) from None
    except NotFound:
        raise NotFound("You have no call with this URI. List your calls with ringback_list_calls.", uri=uri) from None
    reserve_parsed_result(context.asgi_state, context.caller.principal, call)
    stored = await gateway.read_stored_result(context.caller, call)
    gateway.call_resumes.record_read(call, ResumeSurface.MCP_RESOURCE)
    is_paused = await gateway.upstream_controls.is_paused(call)
    text = jsontext.dumps(describe_call(call, stored, is_paused=is_paused)).decode()
    contents = {"uri": uri, "mimeType": "application/json", "text": text, "_meta": meta.build_call_meta(call)}
    return {"contents": [contents], "ttlMs": 0, "cacheScope": "private", "_meta": meta.build_call_meta(call)}
