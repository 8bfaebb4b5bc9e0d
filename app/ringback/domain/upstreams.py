"""What is told of upstreams, and what may be asked of them: narrow Protocols, implemented by the runner.

A call goes its own way (`runner.drive`). This is everything else: what can be called, and, for whoever re-exports an upstream,
its other lists, requests that are passed through, and what it tells unasked.
"""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, Protocol

from ringback.domain.ids import CallId

UPSTREAM_NAME_PATTERN: Final = re.compile(r"[a-z0-9-]{1,24}")
"""It stands in URLs, and in front of a tool's name, of whose 64 characters (the specification's) it leaves most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolInfo:
    """A tool as its upstream lists it."""

    name: str
    description: str | None
    input_schema: Mapping[str, Any]
    raw: Mapping[str, Any]
    """The Tool object as it came, for whoever passes it on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamInfo:
    """An upstream and how it is doing."""

    name: str
    transport: str
    state: str
    """idle | connecting | ready | unresponsive | failing"""
    protocol_version: str | None = None
    driver: str | None = None
    """How a call would be carried that began now: task | mrtr | legacy_task | stream | plain; None while not connected."""
    last_error: str | None = None
    advice: str | None = None
    """What to do about the last error."""
    calls_in_flight: int = 0
    max_concurrent: int = 0
    isolation: str = "shared"
    """shared | principal | call"""
    trusts_annotations: bool = False
    """Whether what its tools say of themselves (readOnlyHint, idempotentHint) may decide anything."""
    faults: Mapping[str, int] = field(default_factory=dict[str, int])
    """What it sent that it should not, since the service started: how often, by kind (`runner.faults`)."""


class ToolCatalog(Protocol):
    """What can be called."""

    def list_upstreams(self) -> Sequence[UpstreamInfo]: ...

    async def list_tools(self, upstream: str) -> Sequence[ToolInfo]:
        """The upstream's tools; raises `Unavailable` when it has never been reached and cannot be now."""
        ...

    async def check_call(
        self, upstream: str, tool: str, arguments: Mapping[str, Any], *, visible_upstreams: frozenset[str] | None
    ) -> None:
        """Raise `UnknownUpstream`, `UnknownTool` or `InvalidArguments` unless this could be called.

        An upstream that is not among the `visible` ones (None: all are) is as unknown as one that does not exist.
        An upstream that cannot be reached now refuses nothing: the call is queued, and the truth is told when it runs.
        """
        ...

    def is_repeatable(self, upstream: str, tool: str) -> bool:
        """Whether a tool says that running it twice does no harm, and its upstream is trusted to say so. Asks nobody."""
        ...

    def get_input_schema(self, upstream: str, tool: str) -> Mapping[str, Any] | None:
        """The tool's, as it was listed last; None when it was not. Asks nobody."""
        ...

    def get_inline_wait_seconds(self, upstream: str, tool: str) -> float | None:
        """How long a tools/call waits for its plain result, as configured for the tool or its upstream; None when it is not."""
        ...

    def is_task_only(self, upstream: str, tool: str) -> bool:
        """Whether the tool is configured to be called as a task only, by MCP clients."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """What reading the configuration again has changed: names of upstreams, sorted."""

    added: Sequence[str]
    changed: Sequence[str]
    removed: Sequence[str]
    unchanged: Sequence[str]


class UpstreamConfiguration(Protocol):
    """The set of upstreams."""

    def reload_configuration(self) -> Reloaded:
        """Read the configuration again and go by it from now on; raises `InvalidConfiguration`, and has changed nothing then.

        Calls that run end where they were begun. Calls that wait go to where their upstream is now; those of one that was
        removed wait until it is there again, or for their deadline.
        """
        ...


# -- passing an upstream on ------------------------------------------------------------------------------------------------


class Listing(StrEnum):
    """The lists of an upstream, by the key under which they stand in its answers."""

    TOOLS = "tools"
    RESOURCES = "resources"
    RESOURCE_TEMPLATES = "resourceTemplates"
    PROMPTS = "prompts"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamProfile:
    """What an upstream said of itself when it was last reached, as it came (camelCase, unknown keys kept)."""

    protocol_version: str
    capabilities: Mapping[str, Any]
    instructions: str | None
    server_info: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamChange:
    """Something that an upstream told unasked: one of its lists changed, or (with `uri`) one of its resources."""

    upstream: str
    listing: Listing | None = None
    uri: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamNotification:
    """A notification of an upstream about one running call, as it came but for its token and reserved `_meta`."""

    method: str
    """notifications/progress | notifications/message"""
    params: Mapping[str, Any]


class UpstreamErrorResponse(Exception):
    """An upstream answered a request that was passed through with a JSON-RPC error, which is passed on as it is."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        super().__init__(f"The upstream refused the request with code {error.get('code')}.")
        self.error = error


class UpstreamProxyPort(Protocol):
    """Upstreams as a gateway passes them on. An upstream that is not configured is `UnknownUpstream`."""

    async def get_profile(self, upstream: str) -> UpstreamProfile | None:
        """As last told, also while the upstream is away and after a restart; None when it was never reached."""
        ...

    async def list_entries(self, upstream: str, listing: Listing) -> Sequence[Mapping[str, Any]]:
        """All pages of the list, in the upstream's order, each entry as it came; as last told while the upstream is away.

        Bounded, and each name once. Raises `Unavailable` when the upstream never told it and cannot be asked now.
        """
        ...

    async def send_request(
        self,
        upstream: str,
        method: str,
        params: Mapping[str, Any],
        *,
        client_capabilities: Mapping[str, Any] | None = None,
    ) -> Mapping[str, Any]:
        """The answer as it came. `declare` is what whoever asks can do for the upstream meanwhile (2026-07-28).

        Only resources/read, prompts/get and completion/complete; `InvalidRequest` for the rest, or without the name they need.
        Raises `UpstreamRefused`, and `Unavailable` when the upstream cannot be asked now.
        """
        ...

    def subscribe_changes(self, upstream: str | None) -> AbstractContextManager[AsyncIterator[UpstreamChange]]:
        """What the upstream tells unasked, from entering on; with None, what any of them tells."""
        ...

    def subscribe_resource(self, upstream: str, uri: str) -> AbstractAsyncContextManager[None]:
        """While this is entered, the upstream is asked to tell when the resource changes (`changes` hears it).

        Entering waits a moment for its word, and raises `UpstreamRefused` if it will not tell. A subscription that could be
        made only later, or had to be made anew, may have missed a change: `changes` then hears of one.
        """
        ...


class CallNotifications(Protocol):
    """What upstreams tell about running calls, while it happens. A hint for whoever waits; what counts is in the store."""

    def subscribe_call(
        self, call_id: CallId, *, log_level: str | None = None
    ) -> AbstractContextManager[AsyncIterator[UpstreamNotification]]:
        """Told from entering on. Bounded: whoever does not keep up misses the oldest. It never ends by itself.

        `log_level` is the least severe level of messages that is wanted (`debug` to `emergency`); without it there are none.
        Upstreams are asked for messages as the call is sent to them, so listen right after it was started.
        """
        ...
