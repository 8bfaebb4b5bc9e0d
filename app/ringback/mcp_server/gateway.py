"""What all handlers share, and how a module adds to every endpoint.

    Gateway         services and ports, passed to every feature once
    Feature         what a module adds: methods, capabilities, built-in tools, task results of tools/call
    MethodBinding   one JSON-RPC method and its eras; the handler gets a `RequestContext` and validated params

Each module has a function `build_feature(gateway) -> Feature`, which `server.build_features` lists. A handler returns the
result as it goes over the wire (camelCase; the dispatcher adds a missing `resultType` and `serverInfo`), or raises `MCPError`
or a `RingbackError`, which `jsonrpc_errors` converts. `context.sdk_context.params` holds the raw params.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from pydantic import BaseModel

from ringback.domain.call import Call, CallStatus
from ringback.domain.clock import Clock
from ringback.domain.encryption import Sealer
from ringback.domain.ids import IdGenerator
from ringback.domain.principal import Caller
from ringback.domain.signals import Signals
from ringback.domain.upstreams import CallNotifications, DisconnectAction, ToolCatalog, UpstreamProxyPort
from ringback.mcp_server.elicitation_ids import ElicitationIds
from ringback.mcp_server.request_context import RequestContext
from ringback.services.calls.calls import Calls
from ringback.services.calls.input_answers import InputAnswers
from ringback.services.calls.resume import CallResumption
from ringback.services.calls.resume_recorder import CallResumeRecorder
from ringback.services.events.change_demands import ChangeDemands
from ringback.services.events.event_lookups import EventLookups
from ringback.services.events.event_polls import EventPolls
from ringback.services.events.event_streams import EventStreams
from ringback.services.events.event_types import EventTypes
from ringback.services.events.events import Events
from ringback.services.lifecycle import Lifecycle
from ringback.services.limits.body_admission import BodyAdmission
from ringback.services.limits.quotas import QuotaEnforcer
from ringback.services.limits.schema_checks import SchemaCheckLimiter
from ringback.services.logins.login_states import LoginStates
from ringback.services.mcp_sessions import McpSessions
from ringback.services.node_signals import NodeSignals
from ringback.services.upstreams.tool_aliases import ToolAliases
from ringback.services.upstreams.upstream_controls import UpstreamControls
from ringback.services.webhooks.event_subscriptions import EventSubscriptions
from ringback.services.webhooks.registrations import WebhookRegistrations
from ringback.services.webhooks.webhooks import Webhooks

Result = dict[str, Any]
"""A JSON-RPC result as it goes over the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    public_url: str
    inline_wait_seconds: float
    """How long a client waits for the plain result before it gets a pending result."""
    wait_seconds_max: float
    """The longest time that any response is held."""
    task_grace_seconds: float
    """The same for a client that supports tasks; after that it gets a task."""
    task_event_source: bool
    """Whether a CreateTaskResult has the draft's field `eventSource`."""
    on_disconnect: DisconnectAction
    """What happens to the call of a modern client that closes its stream, unless its upstream or tool is configured."""
    request_bytes_max: int
    authentication_enabled: bool
    """Without authentication all clients share one principal."""
    result_retention_seconds: float
    """How long a call stays resumable after its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    config: GatewayConfig
    calls: Calls
    input_answers: InputAnswers
    registrations: WebhookRegistrations
    webhooks: Webhooks
    events: Events
    change_demands: ChangeDemands
    event_lookups: EventLookups
    event_polls: EventPolls
    event_streams: EventStreams
    event_types: EventTypes
    event_subscriptions: EventSubscriptions
    find_argument_error: Callable[[Mapping[str, Any], Mapping[str, Any]], str | None]
    """Validates arguments against a JSON Schema, in bounded time: one sentence, or None if they are valid."""
    find_callback_url_error: Callable[[str], str | None]
    """Checks a callback URL against the operator's policy: one sentence, or None if it is allowed."""
    call_resumption: CallResumption
    call_resumes: CallResumeRecorder
    lifecycle: Lifecycle
    quotas: QuotaEnforcer
    body_admission: BodyAdmission
    check_limiter: SchemaCheckLimiter
    catalog: ToolCatalog
    upstream_controls: UpstreamControls
    proxy: UpstreamProxyPort
    call_notifications: CallNotifications
    list_instances: Callable[[str | None], Sequence[str]]
    """The ids of this Ringback and of those behind an upstream, or behind all."""
    tool_aliases: ToolAliases
    sessions: McpSessions
    signals: Signals
    node_signals: NodeSignals
    elicitation_ids: ElicitationIds
    login_states: LoginStates
    sealer: Sealer
    ids: IdGenerator
    clock: Clock
    background_tasks: "TaskSpawner"

    async def read_stored_result(self, caller: Caller, call: Call) -> bytes | None:
        """The CallToolResult of a completed call, as JSON; None for any other call."""
        return (await self.calls.get_result(caller, call.id))[1] if call.status is CallStatus.COMPLETED else None


class TaskSpawner(Protocol):
    """Runs coroutines that outlive their request and end with the service."""

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None: ...


# -- features --------------------------------------------------------------------------------------------------------------

MethodHandler = Callable[[RequestContext, Any], Awaitable[Result]]
Era = Literal["legacy", "modern"]
"""`legacy`: 2025-11-25 and earlier, with a handshake and sessions. `modern`: 2026-07-28."""
BOTH_ERAS: Final[tuple[Era, ...]] = ("legacy", "modern")
LEGACY_ONLY: Final[tuple[Era, ...]] = ("legacy",)
MODERN_ONLY: Final[tuple[Era, ...]] = ("modern",)


@dataclass(frozen=True, slots=True)
class MethodBinding:
    name: str
    params: type[BaseModel]
    """Validated by alias; missing params are validated as `{}`."""
    handler: MethodHandler
    eras: Sequence[Era] = BOTH_ERAS
    """In other eras the method is unknown: -32601."""


async def _is_always_listed(_context: RequestContext) -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinTool:
    """A tool of Ringback itself, listed after the upstream's tools."""

    definition: Mapping[str, Any]
    """The Tool object."""
    handler: Callable[[RequestContext, Mapping[str, Any]], Awaitable[Result]]
    """Validates the arguments and returns a CallToolResult."""
    is_listed: Callable[[RequestContext], Awaitable[bool]] = field(default=_is_always_listed)
    """Whether tools/list has the tool now. It can be called in any case."""


class TaskResponder(Protocol):
    """Answers tools/call with a task of one era."""

    @property
    def responds_immediately(self) -> bool:
        """Whether the client expects a task even if the result exists already."""
        ...

    def get_grace_seconds(self, context: RequestContext) -> float | None:
        """How long to wait for the plain result; None if the request does not ask for a task of this era.

        Raises `MCPError` if the request for a task is invalid.
        """
        ...

    async def create_task_result(self, context: RequestContext, call: Call) -> Result:
        """The CreateTaskResult of a stored call; also starts the notifications about the task."""
        ...


Capabilities = dict[str, Any]


def _advertise_nothing(_era: Era, _capabilities: Capabilities) -> None:
    pass


def _return_tool_unchanged(_context: RequestContext, tool: dict[str, Any]) -> dict[str, Any]:
    return tool


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    methods: Sequence[MethodBinding] = ()
    builtin_tools: Sequence[BuiltinTool] = ()
    task_responder: TaskResponder | None = None
    advertise_capabilities: Callable[[Era, Capabilities], None] = field(default=_advertise_nothing)
    """Adds to the capabilities of `initialize` (legacy) or `server/discover` (modern), in wire form."""
    notification_handlers: Mapping[str, Callable[[RequestContext], Awaitable[None]]] = field(
        default_factory=dict[str, Callable[[RequestContext], Awaitable[None]]]
    )
    """Handlers of client notifications by method; the SDK handles them too."""
    adapt_tool: Callable[[RequestContext, dict[str, Any]], dict[str, Any]] = field(default=_return_tool_unchanged)
    """Changes a copy of an upstream's Tool before a client sees it."""
