"""Cancels the call of a request that the client has cancelled.

A modern client on standard input sends `notifications/cancelled`. Over HTTP the protocol has only the end of the stream for
that, which Ringback takes for a lost client: by default the call continues. So the bridge cancels the call itself. It sends the
request again without a wait, which returns the id of the call that has the request's idempotency key, and then calls
`ringback_cancel_call`. The same cancels a call whose request was lost together with its connection.
"""

from typing import Any, Final

from mcp_types import JSONRPCRequest, JSONRPCResponse

from ringback.cli.stdio_bridge.connection import ServiceConnection
from ringback.cli.stdio_bridge.endpoint import NoResponse, RequestRefused

CANCEL_TOOL: Final = "ringback_cancel_call"
_BUILTIN_PREFIX: Final = "ringback_"
"""Of the tools that Ringback adds. Cancelling a wait for a call does not cancel the call."""
_MCP_META_PREFIX: Final = "io.modelcontextprotocol/"


def may_start_call(request: JSONRPCRequest) -> bool:
    name = (request.params or {}).get("name")
    return request.method == "tools/call" and isinstance(name, str) and not name.startswith(_BUILTIN_PREFIX)


async def cancel_call_of(request: JSONRPCRequest, service: ServiceConnection) -> None:
    """Cancel the call that `request`, which has an idempotency key, has started. Errors end the attempt."""
    retries = service.create_retries()
    while True:
        try:
            call_id = _read_call_id(await service.request(_with_own_id(request, service), query={"wait": "0"}))
            if call_id is not None:
                await service.request(_build_cancel_request(request, call_id, service))
        except NoResponse as failure:
            if await retries.pause_after(failure):
                continue
        except RequestRefused:
            pass  # the call has ended with an error, or was never started
        return


def _with_own_id(request: JSONRPCRequest, service: ServiceConnection) -> JSONRPCRequest:
    return request.model_copy(update={"id": service.session.create_request_id()})


def _build_cancel_request(request: JSONRPCRequest, call_id: str, service: ServiceConnection) -> JSONRPCRequest:
    meta: dict[str, Any] = (request.params or {}).get("_meta") or {}
    envelope = {key: value for key, value in meta.items() if key.startswith(_MCP_META_PREFIX)}
    return JSONRPCRequest(
        jsonrpc="2.0",
        id=service.session.create_request_id(),
        method="tools/call",
        params={"name": CANCEL_TOOL, "arguments": {"call_id": call_id}, "_meta": envelope},
    )


def _read_call_id(response: JSONRPCResponse) -> str | None:
    match response.result:
        case {"_meta": {"ringback/callId": str() as call_id}} | {"taskId": str() as call_id}:
            return call_id
        case {"task": {"taskId": str() as call_id}}:
            return call_id
        case _:
            return None
