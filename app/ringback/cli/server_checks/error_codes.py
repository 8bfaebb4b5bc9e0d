"""The codes of the extension's errors. Two allocations are in use, and a server may answer with either."""

from collections.abc import Mapping
from typing import Final

from ringback.cli.server_checks.cases import Deviation, Violation
from ringback.cli.server_checks.connection import Reply

INVALID_PARAMS: Final = -32602
METHOD_NOT_FOUND: Final = -32601

ERROR_CODES: Final[Mapping[str, frozenset[int]]] = {
    "InvalidParams": frozenset({INVALID_PARAMS}),
    "NotFound": frozenset({-32011, -32023}),
    "Forbidden": frozenset({-32012, -32024}),
    "ResourceExhausted": frozenset({-32013, -32025}),
    "Unsupported": frozenset({-32014, -32026}),
    "CallbackEndpointError": frozenset({-32015, -32027}),
}
"""By name: the design sketch's code, which ChatGPT and the AI SDK know, and the one of SEP-3415's draft."""
SERVER_RANGE: Final = range(-32099, -31999)
"""The codes that JSON-RPC leaves to implementations: -32099 to -32000."""
LAST_ERRORS: Final = frozenset(
    {"connection_refused", "timeout", "tls_error", "http_4xx", "http_5xx", "challenge_failed"}
)
"""The only values of `lastError` and of `data.reason` of CallbackEndpointError."""


def require_error(reply: Reply, name: str, *, strictly: bool = False) -> str:
    """Raise unless the request was refused with this error. Another error is a deviation; `strictly`: a violation."""
    if reply.code in ERROR_CODES[name]:
        return reply.describe()
    wanted = " or ".join(str(code) for code in sorted(ERROR_CODES[name], reverse=True))
    observed = f"{reply.describe()}, expected {name} ({wanted})"
    if not reply.error or strictly:
        raise Violation(observed)
    raise Deviation(observed)
