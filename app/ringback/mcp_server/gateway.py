"""What all handlers share, and how a module adds to every endpoint.

    Gateway    services and ports, handed to every feature once
    Feature    what a module adds: methods, capabilities, tools of our own, a way to answer a tool call by a task
    Method     one JSON-RPC method in the eras it exists in; its handler gets the `Exchange` and validated params

A feature is made by a function of its module from the gateway, `def feature(gateway: Gateway) -> Feature`, and named in
`endpoints.all_features`. A handler returns the result as it goes over the wire (camelCase; `resultType` and the `serverInfo`
stamp are added where they are missing), or raises `MCPError`, or an error of ours (`domain.errors`), which `refusals` words.
What the client sent is in `exchange.context.params`, raw.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from pydantic import BaseModel

from ringback.domain.call import Call, CallStatus
from ringback.domain.clock import Clock
from ringback.domain.encryption import Sealer
from ringback.domain.principal import Caller
from ringback.domain.signals import Signals
from ringback.domain.upstreams import CallNotifications, ToolCatalog, UpstreamProxyPort
from ringback.mcp_server.request_context import RequestContext
from ringback.services.calls import Calls
from ringback.services.events import Events
from ringback.services.input_answers import InputAnswers
from ringback.services.lifecycle import Lifecycle
from ringback.services.quotas import QuotaEnforcer
from ringback.services.resume import CallResumption
from ringback.services.tool_aliases import ToolAliases
from ringback.services.webhooks import Webhooks

Result = dict[str, Any]
"""A JSON-RPC result as it goes over the wire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    public_url: str
    inline_wait_seconds: float
    """How long a client waits for the plain result before it is told where to find it."""
    task_grace_seconds: float
    """The same for a client that takes tasks."""
    keeps_call_on_disconnect: bool
    """Whether a call of 2026-07-28 goes on when the client closes its stream, whatever the request said."""
    request_bytes_max: int
    authentication_enabled: bool
    """Whether authentication is on; when it is off, everybody is the same principal."""
    result_retention_seconds: float
    """How long a call stays resumable after its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    config: GatewayConfig
    calls: Calls
    input_answers: InputAnswers
    webhooks: Webhooks
    events: Events
    resume: CallResumption
    lifecycle: Lifecycle
    quotas: QuotaEnforcer
    catalog: ToolCatalog
    proxy: UpstreamProxyPort
    call_notifications: CallNotifications
    tool_aliases: ToolAliases
    signals: Signals
    sealer: Sealer
    clock: Clock
    background_tasks: "TaskSpawner"

    async def read_stored_result(self, caller: Caller, call: Call) -> bytes | None:
        """The CallToolResult of a completed call, as JSON; None of any other, which has none."""
        return (await self.calls.get_result(caller, call.id))[1] if call.status is CallStatus.COMPLETED else None


class TaskSpawner(Protocol):
    """Work that outlives the request that began it, and ends with the service."""

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None: ...


# -- what a module adds ----------------------------------------------------------------------------------------------------

MethodHandler = Callable[[RequestContext, Any], Awaitable[Result]]
Era = Literal["legacy", "modern"]
"""Before 2026-07-28, with a handshake and sessions, and from then on."""
BOTH_ERAS: Final[tuple[Era, Era]] = ("legacy", "modern")


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodBinding:
    name: str
    params: type[BaseModel]
    """Validated by its aliases; a method without params is validated as `{}`."""
    handler: MethodHandler
    eras: Sequence[Era] = BOTH_ERAS
    """In any other it is -32601, as a method that nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinTool:
    """A tool of Ringback's, listed behind the upstream's."""

    definition: Mapping[str, Any]
    """The Tool object."""
    handler: Callable[[RequestContext, Mapping[str, Any]], Awaitable[Result]]
    """From the arguments, which it judges itself, to a CallToolResult."""


class TaskResponder(Protocol):
    """How a generation of tasks answers tools/call."""

    @property
    def responds_immediately(self) -> bool:
        """Whether who asks for a task expects one, and nothing else: not even a result that is there already."""
        ...

    def get_grace_seconds(self, context: RequestContext) -> float | None:
        """How long the plain result is waited for; None when this client did not ask for a task of this generation.

        Raises `MCPError` when it asked in a way that cannot be met.
        """
        ...

    async def create_task_result(self, context: RequestContext, call: Call) -> Result:
        """The CreateTaskResult of a call that is stored; whatever is to be told later is begun here."""
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
    """Adds to the capabilities of `initialize` (legacy) or `server/discover` (modern), as they stand on the wire."""
    notification_handlers: Mapping[str, Callable[[RequestContext], Awaitable[None]]] = field(
        default_factory=dict[str, Callable[[RequestContext], Awaitable[None]]]
    )
    """What a client tells, by method; the SDK hears of it too."""
    adapt_tool: Callable[[RequestContext, dict[str, Any]], dict[str, Any]] = field(default=_return_tool_unchanged)
    """Changes a Tool of an upstream's, a copy, on its way to the client."""
