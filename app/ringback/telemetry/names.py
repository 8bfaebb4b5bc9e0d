"""The names of everything that OpenTelemetry exports, each declared once.

They follow the semantic conventions for HTTP, messaging, GenAI and MCP. What these have no name for begins with `ringback.`.
No attribute holds arguments, results, bodies, URLs, secrets or tokens. Metrics have few attributes, each with few values: no
metric names a principal, a webhook or a host that a client chose.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class SpanKind(StrEnum):
    SERVER = "server"
    CLIENT = "client"
    PRODUCER = "producer"
    INTERNAL = "internal"


class Attribute(StrEnum):
    """The attributes of spans and metrics."""

    ERROR_TYPE = "error.type"
    """Present if and only if the work failed."""
    HTTP_REQUEST_METHOD = "http.request.method"
    HTTP_RESPONSE_STATUS_CODE = "http.response.status_code"
    HTTP_ROUTE = "http.route"
    """The template of the path. There is no `url.path`, because a path may contain a token."""
    URL_SCHEME = "url.scheme"
    NETWORK_PROTOCOL_NAME = "network.protocol.name"
    NETWORK_PROTOCOL_VERSION = "network.protocol.version"
    NETWORK_TRANSPORT = "network.transport"
    """`tcp` for HTTP, `pipe` for a child process."""
    SERVER_ADDRESS = "server.address"
    """The host of a receiver, without the rest of its URL."""
    SERVER_PORT = "server.port"
    MCP_METHOD_NAME = "mcp.method.name"
    MCP_SESSION_ID = "mcp.session.id"
    MCP_PROTOCOL_VERSION = "mcp.protocol.version"
    JSONRPC_REQUEST_ID = "jsonrpc.request.id"
    RPC_RESPONSE_STATUS_CODE = "rpc.response.status_code"
    """The code of a JSON-RPC error."""
    GEN_AI_OPERATION_NAME = "gen_ai.operation.name"
    GEN_AI_TOOL_NAME = "gen_ai.tool.name"
    GEN_AI_TOOL_CALL_ID = "gen_ai.tool.call.id"
    """The id of the call."""
    GEN_AI_PROMPT_NAME = "gen_ai.prompt.name"
    MESSAGING_SYSTEM = "messaging.system"
    MESSAGING_OPERATION_NAME = "messaging.operation.name"
    MESSAGING_OPERATION_TYPE = "messaging.operation.type"
    MESSAGING_DESTINATION_NAME = "messaging.destination.name"
    """The id of the webhook."""
    MESSAGING_DESTINATION_TEMPLATE = "messaging.destination.template"
    MESSAGING_MESSAGE_ID = "messaging.message.id"
    """The `webhook-id` of the callback."""
    MESSAGING_MESSAGE_BODY_SIZE = "messaging.message.body.size"
    UPSTREAM = "ringback.upstream"
    CALL_ID = "ringback.call.id"
    CALL_OUTCOME = "ringback.call.outcome"
    CALL_RUNS = "ringback.call.runs"
    """How often the call was handed to a runner before, because of a crash or a restart."""
    DELIVERY_ID = "ringback.delivery.id"
    ATTEMPT_NUMBER = "ringback.attempt.number"
    ATTEMPT_CATEGORY = "ringback.attempt.category"


AttributeValue = str | int | float | bool
EXECUTE_TOOL: Final = "execute_tool"
"""GenAI's name of the operation that runs a tool."""
TOOL_ERROR: Final = "tool_error"
"""The `error.type` of a result with `isError`."""
OTHER: Final = "_OTHER"
"""The conventions' word for a value outside the known ones."""
MESSAGING_SYSTEM: Final = "ringback"
SEND_OPERATION: Final = "send"
DESTINATION_TEMPLATE: Final = "webhooks/{webhook_id}"
NAME_LENGTH_MAX: Final = 128
"""Characters of a tool's name, or of another text that a client chose, in a span."""

_TARGET_ATTRIBUTES: Final = (Attribute.GEN_AI_TOOL_NAME, Attribute.GEN_AI_PROMPT_NAME)
RESERVED_ERROR_CODES: Final = range(-32_768, -31_999)
"""JSON-RPC 2.0 §5.1."""

HTTP_BOUNDS_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
MCP_BOUNDS_SECONDS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Both as the conventions advise."""
_MCP_ATTRIBUTES: Final = (
    Attribute.MCP_METHOD_NAME,
    Attribute.MCP_PROTOCOL_VERSION,
    Attribute.GEN_AI_OPERATION_NAME,
    Attribute.GEN_AI_TOOL_NAME,
    Attribute.NETWORK_TRANSPORT,
    Attribute.RPC_RESPONSE_STATUS_CODE,
    Attribute.ERROR_TYPE,
)
_MESSAGING_ATTRIBUTES: Final = (
    Attribute.MESSAGING_SYSTEM,
    Attribute.MESSAGING_OPERATION_NAME,
    Attribute.MESSAGING_OPERATION_TYPE,
    Attribute.MESSAGING_DESTINATION_TEMPLATE,
    Attribute.ERROR_TYPE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """What the ends of some spans are counted by. Without `bounds` it is a counter, otherwise a histogram of seconds."""

    name: str
    unit: str
    description: str
    attributes: Sequence[Attribute]
    """Those of the span's attributes that the metric has."""
    bounds: Sequence[float] = ()
    """The inclusive upper bounds of the buckets, in seconds."""


HTTP_SERVER_DURATION: Final = Metric(
    name="http.server.request.duration",
    unit="s",
    description="Duration of HTTP server requests.",
    attributes=(
        Attribute.HTTP_REQUEST_METHOD,
        Attribute.HTTP_ROUTE,
        Attribute.HTTP_RESPONSE_STATUS_CODE,
        Attribute.URL_SCHEME,
        Attribute.ERROR_TYPE,
    ),
    bounds=HTTP_BOUNDS_SECONDS,
)
MCP_SERVER_DURATION: Final = Metric(
    name="mcp.server.operation.duration",
    unit="s",
    description="Duration of a request of an MCP client, until its result is ready.",
    attributes=_MCP_ATTRIBUTES,
    bounds=MCP_BOUNDS_SECONDS,
)
MCP_CLIENT_DURATION: Final = Metric(
    name="mcp.client.operation.duration",
    unit="s",
    description="Duration of a request to an upstream on behalf of a call or a client, until its response.",
    attributes=(*_MCP_ATTRIBUTES, Attribute.UPSTREAM),
    bounds=MCP_BOUNDS_SECONDS,
)
MESSAGING_DURATION: Final = Metric(
    name="messaging.client.operation.duration",
    unit="s",
    description="Duration of an attempt to deliver a callback.",
    attributes=_MESSAGING_ATTRIBUTES,
    bounds=HTTP_BOUNDS_SECONDS,
)
MESSAGING_SENT: Final = Metric(
    name="messaging.client.sent.messages",
    unit="{message}",
    description="Attempts to deliver a callback.",
    attributes=_MESSAGING_ATTRIBUTES,
)
CALL_RUN_DURATION: Final = Metric(
    name="ringback.call.run.duration",
    unit="s",
    description="How long a runner held a call: until its end, or until it waits for input or another runner.",
    attributes=(Attribute.UPSTREAM, Attribute.GEN_AI_TOOL_NAME, Attribute.CALL_OUTCOME, Attribute.ERROR_TYPE),
    bounds=MCP_BOUNDS_SECONDS,
)
METRICS: Final = (
    HTTP_SERVER_DURATION,
    MCP_SERVER_DURATION,
    MCP_CLIENT_DURATION,
    MESSAGING_DURATION,
    MESSAGING_SENT,
    CALL_RUN_DURATION,
)


def name_rpc_error(code: Any) -> str:
    """The code of a JSON-RPC error as an attribute. Peers invent codes, so those outside the reserved range are one value."""
    return str(code) if isinstance(code, int) and code in RESERVED_ERROR_CODES else OTHER


def name_method_span(method: str, target: Mapping[Attribute, AttributeValue]) -> str:
    """`tools/call git_log`; without a tool or a prompt only the method."""
    return " ".join([method, *(str(target[key]) for key in _TARGET_ATTRIBUTES if key in target)])


def describe_target(method: str, params: Mapping[str, Any]) -> dict[Attribute, AttributeValue]:
    """The tool or the prompt that a request of MCP names, bounded, because a client may name any."""
    is_call, name = method == "tools/call", params.get("name")
    attributes: dict[Attribute, AttributeValue] = {Attribute.GEN_AI_OPERATION_NAME: EXECUTE_TOOL} if is_call else {}
    if isinstance(name, str) and name.isprintable() and method in {"tools/call", "prompts/get"}:
        attributes[Attribute.GEN_AI_TOOL_NAME if is_call else Attribute.GEN_AI_PROMPT_NAME] = name[:NAME_LENGTH_MAX]
    return attributes
