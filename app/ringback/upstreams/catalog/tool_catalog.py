"""The tools of all upstreams, and the check of a call before it is stored.

The connections keep the lists. Only a fresh list can reject a call. If the upstream does not respond now, the call is queued
and an invalid one fails when it runs.
"""

import difflib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, cast

from ringback.domain.errors import InvalidArguments, InvalidRequest, Unavailable, UnknownTool, UnknownUpstream
from ringback.domain.upstreams import ToolConfig, ToolInfo, UpstreamInfo
from ringback.upstreams.catalog.argument_validation import ArgumentValidator

LIST_AGE_SECONDS_MAX: Final = 300.0
"""For upstreams that send no change notifications."""
REJECTING_LIST_AGE_SECONDS_MAX: Final = 2.0
"""The oldest list that may reject a call. Short, because the tool may be new; above 0, because a client may retry in a loop."""
FIRST_LIST_TIMEOUT_SECONDS: Final = 2.0
"""How long a call waits for the first list of an upstream."""
LIST_TOOLS_TIMEOUT_SECONDS: Final = 5.0
"""How long a request for the list waits for it."""
_NAME_LENGTH_MAX: Final = 64


class CatalogConnection(Protocol):
    """What the catalog needs of a connection."""

    def get_info(self) -> UpstreamInfo: ...

    def get_cached_tool(self, name: str) -> ToolInfo | None:
        """The tool as last listed, also if the upstream lists it only for clients that can elicit."""
        ...

    def get_tool_config(self, tool: str) -> ToolConfig: ...

    async def wait_until_settled(self, timeout_seconds: float) -> None:
        """Wait until the first connection attempt has succeeded or failed, but no longer than the timeout."""
        ...

    async def get_tools(self, *, age_seconds_max: float, can_elicit: bool = False) -> Mapping[str, ToolInfo] | None:
        """The tools by name, fetched again if the list is older or has changed; None if they were never listed.

        `can_elicit` selects the tools that the upstream lists for clients that can elicit.
        """
        ...

    async def get_fresh_tools(
        self, *, age_seconds_max: float, can_elicit: bool = False
    ) -> Mapping[str, ToolInfo] | None:
        """Like `get_tools`, but None if the list cannot be fetched now."""
        ...


class UpstreamToolCatalog:
    """Implements `domain.upstreams.ToolCatalog`."""

    def __init__(
        self, connections: Mapping[str, CatalogConnection], draining: Collection[CatalogConnection] = ()
    ) -> None:
        """`draining` connections take no new calls but count with their running ones."""
        self._connections = connections
        self._draining = draining
        self._validators: dict[tuple[str, bool], _ToolValidators] = {}
        """By upstream, and whether the list is the one for calls that accept input."""

    def list_upstreams(self) -> Sequence[UpstreamInfo]:
        draining_calls = Counter[str]()
        for info in (connection.get_info() for connection in self._draining):
            draining_calls[info.name] += info.calls_in_flight
        infos = [connection.get_info() for connection in self._connections.values()]
        return [replace(info, calls_in_flight=info.calls_in_flight + draining_calls[info.name]) for info in infos]

    def has_upstream(self, upstream: str) -> bool:
        return upstream in self._connections

    async def list_tools(self, upstream: str) -> Sequence[ToolInfo]:
        connection = self._get_connection(upstream, visible_upstreams=None)
        tools = await self._get_tools_with_wait(connection, LIST_TOOLS_TIMEOUT_SECONDS, can_elicit=True)
        if tools is None:
            raise Unavailable(f"Upstream '{upstream}' cannot be reached now. See how it is doing: GET /v1/upstreams")
        return list(tools.values())

    async def check_call(
        self,
        upstream: str,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        visible_upstreams: frozenset[str] | None,
        accepts_input: bool = False,
    ) -> None:
        connection = self._get_connection(upstream, visible_upstreams=visible_upstreams)
        tools = await self._get_tools_with_wait(connection, FIRST_LIST_TIMEOUT_SECONDS, can_elicit=False)
        if tools is None or self._find_error((upstream, False), tool, arguments, tools) is None:
            return
        if accepts_input:
            tools = await connection.get_tools(age_seconds_max=LIST_AGE_SECONDS_MAX, can_elicit=True)
            if tools is None or self._find_error((upstream, True), tool, arguments, tools) is None:
                return
        tools = await connection.get_fresh_tools(
            age_seconds_max=REJECTING_LIST_AGE_SECONDS_MAX, can_elicit=accepts_input
        )
        if tools is None or (error := self._find_error((upstream, accepts_input), tool, arguments, tools)) is None:
            return
        if isinstance(error, UnknownTool) and not accepts_input and connection.get_cached_tool(tool) is not None:
            error = UnknownTool(_input_needed_message(upstream, tool), tool=tool)
        raise error

    def _find_error(
        self, listed: tuple[str, bool], tool: str, arguments: Mapping[str, Any], tools: Mapping[str, ToolInfo]
    ) -> InvalidRequest | None:
        """The reason to reject the call, given these tools. `listed` is the key of their validators."""
        upstream, _ = listed
        if tool not in tools:
            return UnknownTool(_unknown_tool_message(upstream, tool, tools), tool=tool)
        if errors := self._get_validators(listed, tools).get_validator(tool).find_errors(arguments):
            detail = "; ".join(f"{error['pointer']}: {error['detail']}" for error in errors)
            return InvalidArguments(
                f"The arguments do not match the inputSchema of '{tool}': {detail}. See it: GET /v1/upstreams/{upstream}/tools",
                tool=tool,
                errors=errors,
            )
        return None

    def is_repeatable(self, upstream: str, tool: str) -> bool:
        connection = self._connections.get(upstream)
        if connection is None or not connection.get_info().trusts_annotations:
            return False
        info = connection.get_cached_tool(tool)
        annotations = info.raw.get("annotations") if info is not None else None
        if not isinstance(annotations, dict):
            return False
        hints = cast("dict[str, Any]", annotations)
        return hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True

    def get_input_schema(self, upstream: str, tool: str) -> Mapping[str, Any] | None:
        connection = self._connections.get(upstream)
        info = None if connection is None else connection.get_cached_tool(tool)
        return None if info is None else info.input_schema

    def get_tool_config(self, upstream: str, tool: str) -> ToolConfig:
        connection = self._connections.get(upstream)
        return ToolConfig() if connection is None else connection.get_tool_config(tool)

    def _get_connection(self, upstream: str, *, visible_upstreams: frozenset[str] | None) -> CatalogConnection:
        connection = self._connections.get(upstream)
        if connection is None or (visible_upstreams is not None and upstream not in visible_upstreams):
            names = [name for name in self._connections if visible_upstreams is None or name in visible_upstreams]
            raise UnknownUpstream(
                f"There is no upstream '{_truncate(upstream)}'.{_suggest_name(upstream, names)} List them: GET /v1/upstreams",
                upstream=_truncate(upstream),
            )
        return connection

    async def _get_tools_with_wait(
        self, connection: CatalogConnection, timeout_seconds: float, *, can_elicit: bool
    ) -> Mapping[str, ToolInfo] | None:
        tools = await connection.get_tools(age_seconds_max=LIST_AGE_SECONDS_MAX, can_elicit=can_elicit)
        if tools is None:
            await connection.wait_until_settled(timeout_seconds)
            tools = await connection.get_tools(age_seconds_max=LIST_AGE_SECONDS_MAX, can_elicit=can_elicit)
        return tools

    def _get_validators(self, listed: tuple[str, bool], tools: Mapping[str, ToolInfo]) -> "_ToolValidators":
        validators = self._validators.get(listed)
        if validators is None or validators.tools is not tools:
            self._validators = {key: of for key, of in self._validators.items() if key[0] in self._connections}
            self._validators[listed] = validators = _ToolValidators(listed[0], tools)
        return validators


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


def _unknown_tool_message(upstream: str, tool: str, tools: Iterable[str]) -> str:
    return (
        f"Upstream '{upstream}' has no tool '{_truncate(tool)}'.{_suggest_name(tool, tools)}"
        f" List them: GET /v1/upstreams/{upstream}/tools"
    )


def _input_needed_message(upstream: str, tool: str) -> str:
    return (
        f"Upstream '{upstream}' offers '{_truncate(tool)}' only to clients that can answer questions. Start the call with "
        "accepts_input, declare the elicitation capability, or give a callback."
    )


def _suggest_name(wanted: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(_truncate(wanted), list(names), n=1)
    return f" Did you mean '{close[0]}'?" if close else ""


def _truncate(text: str) -> str:
    return text if len(text) <= _NAME_LENGTH_MAX else f"{text[:_NAME_LENGTH_MAX]}…"
