r"""The response to a line of the client that is not a JSON-RPC message.

JSON-RPC 2.0 leaves the id out only where it cannot be read. A request whose id can be read gets its error under that id:
otherwise its client waits until its own time-out. The usual one has half of a character, which JavaScript writes as `\ud83d`
where a model's text was cut within an emoji.
"""

import json
from typing import Any

from mcp_types import INVALID_REQUEST, PARSE_ERROR, ErrorData, JSONRPCError, RequestId
from pydantic import ValidationError

from ringback.cli.stdio_bridge.responses import DETAIL_LENGTH_MAX


def build_line_error(error: Exception) -> JSONRPCError:
    """The response, from the error of the parser."""
    request_id, reason = (
        (_find_request_id(error), _find_reason(error)) if isinstance(error, ValidationError) else (None, "")
    )
    code = PARSE_ERROR if request_id is None else INVALID_REQUEST
    message = f"This line is not a JSON-RPC message{reason[:DETAIL_LENGTH_MAX]}."
    return JSONRPCError(jsonrpc="2.0", id=request_id, error=ErrorData(code=code, message=message))


def _find_reason(error: ValidationError) -> str:
    """Why it is not JSON, with the place; or the first member that is wrong."""
    first = error.errors(include_url=False, include_input=False)[0]
    member = ".".join(map(str, first["loc"][1:]))
    return f": {f'{member}: ' if member else ''}{first['msg']}"


def _find_request_id(error: ValidationError) -> RequestId | None:
    """None for what is no request: an error with the id of an answer would look like a response to a request of the client."""
    for each in error.errors(include_url=False):
        match _parse_leniently(each["input"]):
            case {"id": int() | str() as request_id, "method": _} if not isinstance(request_id, bool):
                return request_id if _is_text(request_id) else None
            case _:
                pass
    return None


def _parse_leniently(given: Any) -> Any:
    """An input of the parser, which is the whole line if the line is not JSON. Python's parser allows half of a character."""
    if not isinstance(given, str):
        return given
    try:
        return json.loads(given)
    except (ValueError, RecursionError):
        return None


def _is_text(request_id: RequestId) -> bool:
    """Whether the id can be written to the client."""
    try:
        str(request_id).encode()
    except ValueError:
        return False
    return True
