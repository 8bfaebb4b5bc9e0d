"""The tools of all upstreams, and the check of a call before it is stored.

The connections keep the lists. Only a fresh list can reject a call. If the upstream does not respond now, the call is queued
and an invalid one fails when it runs.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import Any, Final, Protocol, cast
from weakref import WeakKeyDictionary

from ringback.domain.errors import (
    InvalidArguments,
    InvalidRequest,
    SignInRequired,
    Unavailable,
    UnknownTool,
    UnknownUpstream,
)
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import SHARED_OWNER
from ringback.domain.upstreams import CheckWork, SkippedUpstream, ToolConfig, ToolInfo, UpstreamInfo
from ringback.suggestions import suggest_name
from ringback.upstreams.catalog.argument_validation import ArgumentValidator
from ringback.upstreams.connection_problems import ConnectionProblem
from ringback.upstreams.errors import UpstreamUnreachable
from ringback.upstreams.json_schema.steps import StepCounter
from ringback.upstreams.skipped import SkippedEntries, SkippedUpstreams

LIST_AGE_SECONDS_MAX: Final = 300.0
"""For upstreams that send no change notifications."""
REJECTING_LIST_AGE_SECONDS_MAX: Final = 2.0
"""The oldest list that may reject a call. Short, because the tool may be new; above 0, because a client may retry in a loop."""
FIRST_LIST_TIMEOUT_SECONDS: Final = 2.0
"""How long a call waits for the first list of an upstream."""
LIST_TOOLS_TIMEOUT_SECONDS: Final = 5.0
"""How long a request for the list waits for it."""
_NAME_LENGTH_MAX: Final = 64
_UNCHECKED_ADVICE: Final = (
    'If the tool accepts them nevertheless, the operator can leave the check to it ("check_arguments": false).'
)


class ToolLists(Protocol):
    """What the catalog needs of the lists of a connection (`upstream_lists`)."""

    def get_cached_tool(self, name: str) -> ToolInfo | None:
        """The tool as last listed, also if the upstream lists it only for clients that can elicit."""
        ...

    def find_cached_tools(self, *, age_seconds_max: float) -> Mapping[str, ToolInfo] | None:
        """The tools by name, at once; None if they were never listed, have changed, or the list is older."""
        ...

    async def get_tools(self, *, age_seconds_max: float, can_elicit: bool) -> Mapping[str, ToolInfo] | None:
        """The tools by name, fetched again if the list is older or has changed; None if they were never listed.

        `can_elicit` selects the tools that the upstream lists for clients that can elicit.
        """
        ...

    async def get_fresh_tools(self, *, age_seconds_max: float, can_elicit: bool) -> Mapping[str, ToolInfo] | None:
        """Like `get_tools`, but None if the list cannot be fetched now."""
        ...


class CatalogConnection(Protocol):
    """What the catalog needs of a connection."""

    @property
    def owner(self) -> Principal:
        """The owner of its credentials."""
        ...

    @property
    def lists(self) -> ToolLists: ...

    def get_info(self) -> UpstreamInfo: ...

    async def wait_until_settled(self, timeout_seconds: float) -> None:
        """Wait until the first connection attempt has succeeded or failed, but no longer than the timeout."""
        ...


class CatalogConnections(Protocol):
    """Where the catalog finds connections (`connection_directory`)."""

    def __contains__(self, upstream: str) -> bool: ...

    def list_names(self) -> Sequence[str]:
        """The upstreams in their configured order."""
        ...

    def get_info(self, upstream: str, principal: Principal | None) -> UpstreamInfo:
        """The state of the connection that this principal uses; None: of all of them."""
        ...

    def get_tool_config(self, upstream: str, tool: str) -> ToolConfig:
        """The defaults if there is no such upstream."""
        ...

    def find_connection(self, upstream: str, principal: Principal) -> CatalogConnection | None:
        """The connection, if it is open. The caller uses it at once, and does not wait meanwhile."""
        ...

    async def check_login(self, upstream: str, principal: Principal) -> None:
        """Replace the principal's connection if it belongs to an earlier login. Call it before `use_connection`."""
        ...

    def use_connection(self, upstream: str, principal: Principal) -> AbstractContextManager[CatalogConnection]:
        """The connection, which stays open while entered. Raises `UpstreamUnreachable`."""
        ...


class UpstreamToolCatalog:
    """Implements `domain.upstreams.ToolCatalog`."""

    def __init__(
        self,
        connections: CatalogConnections,
        draining: Collection[CatalogConnection] = (),
        *,
        skipped: SkippedUpstreams | None = None,
    ) -> None:
        """`draining` connections take no new calls but count with their running ones."""
        self._connections = connections
        self._draining = draining
        self._skipped = skipped or SkippedEntries()
        self._validators = WeakKeyDictionary[CatalogConnection, dict[bool, _ToolValidators]]()
        """Of each open connection, by whether the list is the one for calls that accept input."""

    def list_upstreams(self, principal: Principal | None = None) -> Sequence[UpstreamInfo]:
        draining_calls, draining_waits = Counter[str](), Counter[str]()
        for connection in self._draining:
            if principal is None or connection.owner in {SHARED_OWNER, principal}:
                info = connection.get_info()
                draining_calls[info.name] += info.calls_in_flight
                draining_waits[info.name] += info.calls_waiting
        infos = [self._connections.get_info(name, principal) for name in self._connections.list_names()]
        kept = {each.name: each.describe_kept() for each in self._skipped.list_kept()}
        return [
            replace(
                info,
                advice=info.advice or kept.get(info.name),
                calls_in_flight=info.calls_in_flight + draining_calls[info.name],
                calls_waiting=info.calls_waiting + draining_waits[info.name],
            )
            for info in infos
        ]

    def has_upstream(self, upstream: str) -> bool:
        return upstream in self._connections

    def list_skipped(self) -> Sequence[SkippedUpstream]:
        return self._skipped.list_all()

    async def list_tools(self, upstream: str, *, principal: Principal) -> Sequence[ToolInfo]:
        self._require_upstream(upstream, visible_upstreams=None)
        await self._connections.check_login(upstream, principal)
        problem: str | None = None
        with suppress(UpstreamUnreachable), self._connections.use_connection(upstream, principal) as connection:
            tools = await self._get_tools_with_wait(connection, LIST_TOOLS_TIMEOUT_SECONDS, can_elicit=True)
            if tools is not None:
                return list(tools.values())
            require_no_login(connection.get_info())
            problem = connection.get_info().last_error
        raise upstream_unavailable(upstream, problem)

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
        self._require_upstream(upstream, visible_upstreams=visible_upstreams)
        await self._connections.check_login(upstream, principal)
        with suppress(UpstreamUnreachable), self._connections.use_connection(upstream, principal) as connection:
            await self._check_on_connection(
                connection, upstream, tool, arguments, accepts_input=accepts_input, work=work, measure=measure
            )

    async def _check_on_connection(
        self,
        connection: CatalogConnection,
        upstream: str,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        accepts_input: bool,
        work: CheckWork | None,
        measure: Callable[[], AbstractContextManager[None]],
    ) -> None:
        def find_error(tools: Mapping[str, ToolInfo], *, can_elicit: bool) -> InvalidRequest | None:
            if tool not in tools:
                return UnknownTool(_unknown_tool_message(upstream, tool, tools), tool=tool)
            if not self._connections.get_tool_config(upstream, tool).checks_arguments:
                return None
            validators = self._get_validators(connection, upstream, tools, can_elicit=can_elicit)
            validator = validators.get_validator(tool)
            with measure():
                return _find_invalid_arguments(validator, upstream, tool, arguments, work)

        tools = connection.lists.find_cached_tools(age_seconds_max=LIST_AGE_SECONDS_MAX)
        if tools is None:
            tools = await self._get_tools_with_wait(connection, FIRST_LIST_TIMEOUT_SECONDS, can_elicit=False)
        if tools is None or find_error(tools, can_elicit=False) is None:
            return
        if accepts_input:
            tools = await connection.lists.get_tools(age_seconds_max=LIST_AGE_SECONDS_MAX, can_elicit=True)
            if tools is None or find_error(tools, can_elicit=True) is None:
                return
        # A connection that is being opened has listed its tools before it is ready to list them again.
        await connection.wait_until_settled(FIRST_LIST_TIMEOUT_SECONDS)
        tools = await connection.lists.get_fresh_tools(
            age_seconds_max=REJECTING_LIST_AGE_SECONDS_MAX, can_elicit=accepts_input
        )
        if tools is None or (error := find_error(tools, can_elicit=accepts_input)) is None:
            return
        if isinstance(error, UnknownTool) and not accepts_input and connection.lists.get_cached_tool(tool) is not None:
            error = UnknownTool(_input_needed_message(upstream, tool), tool=tool)
        raise error

    def is_repeatable(self, upstream: str, tool: str, *, principal: Principal) -> bool:
        connection = self._connections.find_connection(upstream, principal)
        if connection is None or not connection.get_info().trusts_annotations:
            return False
        info = connection.lists.get_cached_tool(tool)
        annotations = info.raw.get("annotations") if info is not None else None
        if not isinstance(annotations, dict):
            return False
        hints = cast("dict[str, Any]", annotations)
        return hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True

    def find_tool(self, upstream: str, tool: str, *, principal: Principal) -> ToolInfo | None:
        connection = self._connections.find_connection(upstream, principal)
        return None if connection is None else connection.lists.get_cached_tool(tool)

    def get_tool_config(self, upstream: str, tool: str) -> ToolConfig:
        return self._connections.get_tool_config(upstream, tool)

    def _require_upstream(self, upstream: str, *, visible_upstreams: frozenset[str] | None) -> None:
        is_served = upstream in self._connections
        if is_served and (visible_upstreams is None or upstream in visible_upstreams):
            return
        if not is_served and (skipped := self._find_visible_skipped(upstream, visible_upstreams)) is not None:
            raise UnknownUpstream(skipped.describe(), upstream=_truncate(upstream))
        names = [
            name for name in self._connections.list_names() if visible_upstreams is None or name in visible_upstreams
        ]
        raise UnknownUpstream(
            f"There is no upstream '{_truncate(upstream)}'.{suggest_name(upstream, names)} List them: GET /v1/upstreams",
            upstream=_truncate(upstream),
        )

    def _find_visible_skipped(self, upstream: str, visible_upstreams: frozenset[str] | None) -> SkippedUpstream | None:
        is_visible = visible_upstreams is None or upstream in visible_upstreams
        return self._skipped.find(upstream) if is_visible else None

    async def _get_tools_with_wait(
        self, connection: CatalogConnection, timeout_seconds: float, *, can_elicit: bool
    ) -> Mapping[str, ToolInfo] | None:
        tools = await connection.lists.get_tools(age_seconds_max=LIST_AGE_SECONDS_MAX, can_elicit=can_elicit)
        if tools is None:
            await connection.wait_until_settled(timeout_seconds)
            tools = await connection.lists.get_tools(age_seconds_max=LIST_AGE_SECONDS_MAX, can_elicit=can_elicit)
        return tools

    def _get_validators(
        self, connection: CatalogConnection, upstream: str, tools: Mapping[str, ToolInfo], *, can_elicit: bool
    ) -> "_ToolValidators":
        of_connection = self._validators.setdefault(connection, {})
        validators = of_connection.get(can_elicit)
        if validators is None or validators.tools is not tools:
            of_connection[can_elicit] = validators = _ToolValidators(upstream, tools)
        return validators


def require_no_login(info: UpstreamInfo) -> None:
    """Raise `SignInRequired` if the upstream was not reached because it requires a login."""
    if info.last_error == ConnectionProblem.LOGIN_REQUIRED:
        raise login_required(info.name)


_LASTING_PROBLEMS: Final = {ConnectionProblem.NOT_FOUND, ConnectionProblem.NOT_STARTED}
"""Another attempt at the request does not help."""


def upstream_unavailable(upstream: str, problem: str | None) -> Unavailable:
    """The error of a request that needs the upstream at once. `problem` is why it could not be reached; None if it was."""
    if problem in _LASTING_PROBLEMS:
        return Unavailable(
            f"Upstream '{upstream}' cannot be started ({problem}), until its entry in the configuration is corrected. "
            "See what to do: GET /v1/upstreams"
        )
    if problem == ConnectionProblem.TOKENS_UNREADABLE:
        return Unavailable(
            f"There is a login to upstream '{upstream}', and this node lacks the key that sealed its tokens. Another node has "
            "it. Send the request again."
        )
    state = "does not respond now" if problem is None else f"cannot be reached now ({problem})"
    return Unavailable(f"Upstream '{upstream}' {state}. See how it is doing: GET /v1/upstreams")


def login_required(upstream: str) -> SignInRequired:
    return SignInRequired(
        f"Upstream '{upstream}' requires a login. Its tools can be called already: the calls wait for the login.",
        upstream=upstream,
    )


class _ToolValidators:
    """The validators of one list of tools, each compiled at its first use."""

    def __init__(self, upstream: str, tools: Mapping[str, ToolInfo]) -> None:
        self.tools = tools
        self._upstream = upstream
        self._validators: dict[str, ArgumentValidator] = {}

    def get_validator(self, tool: str) -> ArgumentValidator:
        if tool not in self._validators:
            schema = self.tools[tool].input_schema
            self._validators[tool] = ArgumentValidator(schema, upstream=self._upstream, tool=tool)
        return self._validators[tool]


def _find_invalid_arguments(
    validator: ArgumentValidator, upstream: str, tool: str, arguments: Mapping[str, Any], work: CheckWork | None
) -> InvalidArguments | None:
    if not (errors := _find_errors(validator, arguments, work)):
        return None
    detail = "; ".join(f"{error['pointer']}: {error['detail']}" for error in errors)
    return InvalidArguments(
        f"The arguments do not match the inputSchema of '{tool}': {detail}. {_UNCHECKED_ADVICE} "
        f"See it: GET /v1/upstreams/{upstream}/tools",
        tool=tool,
        errors=errors,
    )


def _find_errors(
    validator: ArgumentValidator, arguments: Mapping[str, Any], work: CheckWork | None
) -> list[dict[str, str]]:
    if work is None:
        return validator.find_errors(arguments)
    steps = StepCounter()
    steps.left -= work.steps
    before = steps.left
    try:
        return validator.find_errors(arguments, steps)
    finally:
        work.steps += before - steps.left


def _unknown_tool_message(upstream: str, tool: str, tools: Iterable[str]) -> str:
    return (
        f"Upstream '{upstream}' has no tool '{_truncate(tool)}'.{suggest_name(tool, tools)}"
        f" List them: GET /v1/upstreams/{upstream}/tools"
    )


def _input_needed_message(upstream: str, tool: str) -> str:
    return (
        f"Upstream '{upstream}' offers '{_truncate(tool)}' only to clients that can answer questions. Start the call with "
        "accepts_input, declare the elicitation capability, or give a callback."
    )


def _truncate(text: str) -> str:
    return text if len(text) <= _NAME_LENGTH_MAX else f"{text[:_NAME_LENGTH_MAX]}…"
