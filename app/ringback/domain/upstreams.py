"""Ports to upstreams, except for running calls: the tool catalog, and lists, requests and notifications for proxies."""

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, Final, Protocol, cast

from ringback.domain.call import RerunPolicy
from ringback.domain.ids import CallId
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import SHARED_OWNER, CredentialsScope


class DisconnectAction(StrEnum):
    """What happens to a call whose MCP client closes the response stream of a 2026-07-28 request while it waits."""

    KEEP = "keep"
    """The call continues; only an explicit cancellation cancels it."""
    CANCEL = "cancel"


class PendingForm(StrEnum):
    """What a client without tasks gets for a call that outlives its wait."""

    RESULT = "result"
    ERROR = "error"
    """A result with `isError`, for clients that make typed objects of structuredContent: they ignore the fields of a pending
    result and return an object of nulls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolConfig:
    """How calls to a tool are answered and recovered, by configuration of the tool, or else of its upstream."""

    inline_wait_seconds: float | None = None
    """How long tools/call waits for the plain result; None selects the setting of the service."""
    on_disconnect: DisconnectAction | None = None
    """None selects the setting of the service."""
    pending: PendingForm = PendingForm.RESULT
    is_task_only: bool = False
    """Whether the tool may only be called as a task."""
    rerun_policy: RerunPolicy = RerunPolicy.NEVER
    """The policy of calls whose client sets none. MCP clients cannot set one."""
    checks_arguments: bool = True
    """Whether arguments that the inputSchema refuses are refused before the call; else the tool alone judges them."""


HEADER_KEYWORD: Final = "x-mcp-header"
"""The keyword of an inputSchema that names the header for an argument."""


@dataclass(frozen=True, kw_only=True)
class ToolInfo:
    """A tool as its upstream lists it."""

    name: str
    description: str | None
    input_schema: Mapping[str, Any]
    raw: Mapping[str, Any]
    """The Tool object, unchanged, for proxies."""

    @cached_property
    def may_repeat_arguments(self) -> bool:
        """Whether its calls may repeat arguments in headers (2026-07-28). Each call asks, and a schema takes long to read."""
        unread: list[Any] = [self.input_schema]
        while unread:
            each = unread.pop()
            if isinstance(each, Mapping):
                members = cast("Mapping[str, Any]", each)
                if HEADER_KEYWORD in members:
                    return True
                unread.extend(members.values())
            elif isinstance(each, list):
                unread.extend(cast("list[Any]", each))
        return False


@dataclass(slots=True)
class CheckWork:
    """The work of all checks of one request. They share the limit of one check."""

    steps: int = 0


LOGIN_REQUIRED_PROBLEM: Final = "login_required"
"""The `last_error` of an upstream that refuses its connection for want of a login."""
TOKENS_UNREADABLE_PROBLEM: Final = "tokens_unreadable"
"""The same if there is a login, and this node lacks the key that sealed its tokens."""


class SkipReason(StrEnum):
    """Why an entry of the configuration is not served."""

    RETIRED_TRANSPORT = "retired_transport"
    MISSING_VARIABLE = "missing_variable"
    INVALID_NAME = "invalid_name"
    NAME_CONFLICT = "name_conflict"
    INVALID_ENTRY = "invalid_entry"
    RINGBACK_ITSELF = "ringback_itself"
    """The entry leads back to this service."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedUpstream:
    """An entry of the configuration that is not served. It shows no value of a variable."""

    name: str
    """The name that the upstream would have; the name in the file if it can have none."""
    configured_name: str
    """The name in the file, bounded and printable."""
    reason: SkipReason
    advice: str
    """What is wrong with the entry, and what to do."""

    def describe(self) -> str:
        return f"Upstream '{self.name}' is configured but skipped: {self.advice}"

    def describe_kept(self) -> str:
        return f"Its entry in the configuration is not valid now, and the former one stays in use: {self.advice}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamInfo:
    """An upstream and its state."""

    name: str
    configured_name: str = ""
    """The name in the file, if it is another one."""
    transport: str
    """stdio | http; unknown for a skipped one"""
    state: str
    """idle | connecting | ready | unresponsive | failing | skipped"""
    state_since: datetime | None = None
    """By this process's clock; None for a skipped one, and for one without a connection."""
    protocol_version: str | None = None
    driver: str | None = None
    """The driver of a call that starts now: task | mrtr | legacy_task | stream | plain; None while not connected."""
    last_error: str | None = None
    advice: str | None = None
    """What to do about the last error; without one, about an entry in whose place the former one is served."""
    error_output: str | None = None
    """For operators: the exit code and the last lines of standard error of a command that ended before it served a call."""
    calls_in_flight: int = 0
    """Calls that were sent and have not ended."""
    calls_waiting: int = 0
    """Calls that a runner has leased and that are not sent yet: they wait after HTTP 429, for a token or for a connection."""
    max_concurrent: int = 0
    isolation: str = "shared"
    """shared | principal | call"""
    connections: int = 1
    """Open connections. An upstream with credentials for each principal has one for each that uses it now."""
    trusts_annotations: bool = False
    """Whether the rerun policy uses its tools' annotations (readOnlyHint, idempotentHint)."""
    checks_arguments: bool = True
    """Whether arguments are checked before a call."""
    credentials: CredentialsScope | None = None
    """Whose login calls use; None if the upstream uses no login: it is a child process, or has configured credentials."""
    faults: Mapping[str, int] = field(default_factory=dict[str, int])
    """Counts of invalid messages from the upstream since the service started, by kind (`upstreams.faults`)."""


class ToolCatalog(Protocol):
    """The tools that can be called.

    An upstream with credentials for each principal may list other tools for each, so methods that read lists take the
    principal. They open its connection, unless they read the cache only.
    """

    def list_upstreams(self, principal: Principal | None = None) -> Sequence[UpstreamInfo]:
        """The upstreams in their configured order. The state is that of the principal's connections; None: of all."""
        ...

    def has_upstream(self, upstream: str) -> bool: ...

    def list_skipped(self) -> Sequence[SkippedUpstream]:
        """The entries of the configuration that are not served. No other method returns them."""
        ...

    async def list_tools(self, upstream: str, *, principal: Principal) -> Sequence[ToolInfo]:
        """The tools that the upstream lists for clients that can elicit.

        Raises `Unavailable` if the upstream has never been reached and cannot be reached now.
        """
        ...

    async def check_call(
        self,
        upstream: str,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        principal: Principal,
        visible_upstreams: frozenset[str] | None,
        accepts_input: bool = False,
        work: CheckWork | None = None,
        measure: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        """Raise `UnknownUpstream`, `UnknownTool` or `InvalidArguments` if the call is not possible.

        Tools that the upstream lists only for clients that can elicit are possible for calls that accept input.

        An upstream outside `visible_upstreams` (None: all) is reported like one that does not exist. While an upstream cannot
        be reached, nothing is refused: the call is queued and checked when it runs. Nor are arguments beyond the limit of
        `work`, which the tool itself checks. `measure` is entered around each check of the arguments.
        """
        ...

    def is_repeatable(self, upstream: str, tool: str, *, principal: Principal) -> bool:
        """Whether the tool's trusted annotations allow a second run. Reads the cache only."""
        ...

    def find_tool(self, upstream: str, tool: str, *, principal: Principal) -> ToolInfo | None:
        """The tool in the last listing, or None. Reads the cache only."""
        ...

    def get_tool_config(self, upstream: str, tool: str) -> ToolConfig:
        """The configuration of a tool, also of one that is not listed; the defaults if there is no such upstream."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """The result of a reload: names of upstreams, sorted."""

    added: Sequence[str]
    changed: Sequence[str]
    removed: Sequence[str]
    """Upstreams without an entry. One whose entry is skipped is in `skipped` only."""
    unchanged: Sequence[str]
    skipped: Sequence[SkippedUpstream] = ()
    """The entries that are not served, in the order of the configuration."""
    kept: Sequence[SkippedUpstream] = ()
    """The entries that cannot be served, of upstreams that were served before and go on with their former entries."""
    queued_calls: Mapping[str, int] = field(default_factory=dict[str, int])
    """Calls of all principals in the queues of upstreams that are removed or skipped; upstreams without any are left out."""
    quotas_changed: bool = False
    """Whether the file has other quotas of principals or keys than before."""


class UpstreamConfiguration(Protocol):
    """The set of upstreams."""

    def reload_configuration(self) -> Reloaded:
        """Read the configuration again and apply it. Raises `InvalidConfiguration` and then changes nothing.

        Running calls end on their present connection. Queued calls use the new configuration; those of a removed upstream wait
        until it is configured again or their deadline passes.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarted:
    """What a restart of an upstream has ended in this process."""

    connections: int
    """That were open."""
    calls: int
    """That ran on them."""


class UpstreamConnections(Protocol):
    """The connections of this process to the upstreams."""

    def restart_connections(self, upstream: str) -> Restarted:
        """End all connections to the upstream, with its child processes, and open them again. It may have none.

        A call that waits for its response ends as `unknown`, unless its driver can go on with it.
        """
        ...


# -- proxying an upstream ---------------------------------------------------------------------------------------------------


class Listing(StrEnum):
    """The lists of an upstream, by their key in its responses."""

    TOOLS = "tools"
    RESOURCES = "resources"
    RESOURCE_TEMPLATES = "resourceTemplates"
    PROMPTS = "prompts"
    EVENTS = "events"
    """Event types (MCP Events). Their names are in `domain.event_types`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamProfile:
    """The upstream's last description of itself, unchanged (camelCase, unknown keys kept)."""

    protocol_version: str
    capabilities: Mapping[str, Any]
    instructions: str | None
    server_info: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamChange:
    """A change notification of an upstream: one of its lists changed, or (with `uri`) one of its resources."""

    upstream: str
    listing: Listing | None = None
    uri: str | None = None
    owner: Principal = SHARED_OWNER
    """Whose connection received it. Only this principal is notified; `SHARED_OWNER`: every principal."""

    def concerns(self, principal: Principal) -> bool:
        return self.owner in {SHARED_OWNER, principal}


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamNotification:
    """A notification of an upstream about one running call, without its token and reserved `_meta`."""

    method: str
    """notifications/progress | notifications/message"""
    params: Mapping[str, Any]


class UpstreamErrorResponse(Exception):
    """An upstream answered a proxied request with a JSON-RPC error, which the proxy returns unchanged."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(f"The upstream refused the request with code {error.get('code')}.")
        self.error = error


class UpstreamProxyPort(Protocol):
    """Upstreams for a proxy. Methods raise `UnknownUpstream` for an upstream that is not configured.

    With credentials for each principal, everything comes from the connection of this principal, which is opened if needed.
    """

    def get_owner(self, upstream: str, principal: Principal) -> Principal:
        """The owner of the connection that this principal uses: the principal, or `SHARED_OWNER`."""
        ...

    async def get_profile(self, upstream: str, *, principal: Principal) -> UpstreamProfile | None:
        """The last profile, also while the upstream is down and after a restart; None if it was never reached."""
        ...

    async def list_entries(
        self, upstream: str, listing: Listing, *, principal: Principal, can_elicit: bool = False
    ) -> Sequence[Mapping[str, Any]]:
        """All pages of the list, in the upstream's order, entries unchanged; the cached list while the upstream is down.

        With `can_elicit`, tools are those that the upstream lists for clients that can elicit. The list is bounded and has each
        name once. Raises `Unavailable` without a cached list while the upstream is down.
        """
        ...

    async def send_request(
        self,
        upstream: str,
        method: str,
        params: Mapping[str, Any],
        *,
        principal: Principal,
        client_capabilities: Mapping[str, Any] | None = None,
    ) -> Mapping[str, Any]:
        """The result, unchanged. `client_capabilities` are declared to the upstream for this request (2026-07-28).

        Only resources/read, prompts/get and completion/complete are allowed; `InvalidRequest` for other methods or a missing
        name. Raises `UpstreamErrorResponse`, and `Unavailable` while the upstream cannot be reached.
        """
        ...

    def subscribe_changes(
        self, upstream: str | None, *, principal: Principal, uris: Collection[str] | None = None
    ) -> AbstractContextManager[AsyncIterator[UpstreamChange]]:
        """Change notifications of the upstream (None: of every upstream) for this principal, from entering on.

        With `uris`, of resources only the changes of these: what a slow reader has not read is in memory.

        The principal's connection stays open meanwhile, unless another principal needs its place. With None, it is opened
        by the next use of its upstream.
        """
        ...

    def subscribe_resource(self, upstream: str, uri: str, *, principal: Principal) -> AbstractAsyncContextManager[None]:
        """Subscribe to changes of the resource while this is entered. `subscribe_changes` yields them.

        Entering waits a moment for the upstream's response and raises `UpstreamErrorResponse` if the upstream refuses. After a
        late or repeated subscription, which may have missed a change, `subscribe_changes` yields one.
        """
        ...


class CallNotifications(Protocol):
    """Live notifications of upstreams about running calls. They are hints; the store has the state of the call."""

    def subscribe_call(
        self, call_id: CallId, *, log_level: str | None = None, on_notification: Callable[[], None] | None = None
    ) -> AbstractContextManager[AsyncIterator[UpstreamNotification]]:
        """Notifications from entering on, without an end. A slow subscriber loses the oldest.

        `on_notification` runs when a notification has arrived, before anyone has read it.

        `log_level` is the lowest level of log messages (`debug` to `emergency`); None excludes log messages. The dispatch of
        the call requests log messages from the upstream, so subscribe right after the call starts.
        """
        ...
