"""Cancels the call of a request that the client has cancelled.

while the service processes it   legacy: `notifications/cancelled`. Modern: `ringback/cancelRequest`, because over HTTP the
                                 protocol has only the end of the stream, which by default leaves the call
after its connection was lost    the same, before the request is sent again without a wait. So a request that never arrived
                                 starts a call that is cancelled already and never sent; otherwise the response names the
                                 call that has its idempotency key, for `ringback_cancel_call`
"""

from typing import Any, Final

from mcp_types import JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from ringback.cli.stdio_bridge.connection import CANCEL_TOOL, ServiceConnection
from ringback.cli.stdio_bridge.forwarded_request import ForwardedRequest
from ringback.cli.stdio_bridge.responses import NoResponse, RequestRefused, SessionUnknown
from ringback.protocol.builtin_tools import is_builtin_tool
from ringback.protocol.cancel_keys import CANCEL_REQUEST_METHOD

_MCP_META_PREFIX: Final = "io.modelcontextprotocol/"


def may_start_call(request: JSONRPCRequest) -> bool:
    """Not a call of a built-in tool: cancelling a wait for a call does not cancel the call."""
    name = (request.params or {}).get("name")
    return request.method == "tools/call" and isinstance(name, str) and not is_builtin_tool(name)


async def cancel_sent_request(
    request: ForwardedRequest, notification: JSONRPCNotification, service: ServiceConnection
) -> bool:
    """Cancel a request that the service processes; return False if the service did not get the cancellation."""
    if request.is_modern and not may_start_call(request.message):
        return True  # the end of its stream cancels it
    try:
        if request.is_modern:
            cancellation = _build_own_request(CANCEL_REQUEST_METHOD, {}, request.message, service)
            await service.request(cancellation, headers=request.cancel_headers)
        else:
            params = {**(notification.params or {}), "requestId": request.sent_id}
            await service.post_in_this_session(notification.model_copy(update={"params": params}))
    except (NoResponse, RequestRefused, SessionUnknown):
        return False
    return True


async def cancel_lost_call(lost: ForwardedRequest, service: ServiceConnection) -> None:
    """Cancel the call that the request, which has an idempotency key, has started, if any. Errors end the attempt."""
    retries, request = service.create_retries(), lost.message
    while True:
        try:
            repeated = _with_own_id(request, service)
            if lost.is_modern:
                cancellation = _build_own_request(CANCEL_REQUEST_METHOD, {}, request, service)
                await service.request(cancellation, headers=lost.cancel_headers)
            else:
                await service.post(_build_cancellation(repeated))
            response = await service.request(repeated, headers=lost.cancel_headers, query={"wait": "0"})
            call_id = _read_call_id(response)
            if call_id is not None:
                params = {"name": CANCEL_TOOL, "arguments": {"call_id": call_id}}
                await service.request(_build_own_request("tools/call", params, request, service))
        except NoResponse as failure:
            if await retries.pause_after(failure):
                continue
        except RequestRefused:
            pass  # the call has ended with an error, or was never started
        return


def _build_cancellation(request: JSONRPCRequest) -> JSONRPCNotification:
    params = {"requestId": request.id, "reason": "cancelled by the client"}
    return JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params=params)


def _with_own_id(request: JSONRPCRequest, service: ServiceConnection) -> JSONRPCRequest:
    return request.model_copy(update={"id": service.session.create_request_id()})


def _build_own_request(
    method: str, params: dict[str, Any], original: JSONRPCRequest, service: ServiceConnection
) -> JSONRPCRequest:
    """A request of the bridge's own, in the era of the original one."""
    meta: dict[str, Any] = (original.params or {}).get("_meta") or {}
    envelope = {key: value for key, value in meta.items() if key.startswith(_MCP_META_PREFIX)}
    request_id = service.session.create_request_id()
    return JSONRPCRequest(jsonrpc="2.0", id=request_id, method=method, params={**params, "_meta": envelope})


def _read_call_id(response: JSONRPCResponse) -> str | None:
    match response.result:
        case {"_meta": {"ringback/callId": str() as call_id}} | {"taskId": str() as call_id}:
            return call_id
        case {"task": {"taskId": str() as call_id}}:
            return call_id
        case _:
            return None
