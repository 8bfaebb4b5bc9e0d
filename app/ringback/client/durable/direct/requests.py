"""The params of a tools/call."""

from typing import Any, Final

from ringback.client.durable.local_call import LocalCall

CLIENT_SESSION_ID_KEY: Final = "ringback/clientSessionId"
CORRELATION_ID_KEY: Final = "ringback/correlationId"
IDEMPOTENCY_KEY_KEY: Final = "ringback/idempotencyKey"
"""The `_meta` keys that a Ringback's MCP endpoint reads, and a server with `ringback.extension`. Other servers ignore them."""


def make_tool_call_params(call: LocalCall) -> dict[str, Any]:
    request = call.record.request
    ids = {
        CLIENT_SESSION_ID_KEY: request.client_session_id,
        CORRELATION_ID_KEY: request.correlation_id,
        IDEMPOTENCY_KEY_KEY: request.idempotency_key,
    }
    meta = {key: value for key, value in ids.items() if value is not None}
    return {"name": request.tool, "arguments": dict(request.arguments), "_meta": meta}
