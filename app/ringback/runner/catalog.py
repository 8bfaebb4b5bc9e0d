"""What can be called, as the upstreams list it, and whether a call makes sense before it is stored.

Lists are kept by the connections. A call is refused only by a fresh list, and by none at all when the upstream cannot be asked:
then the call is queued, and the truth is told when it runs.
"""

import difflib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, cast

from ringback.domain.errors import InvalidArguments, InvalidRequest, Unavailable, UnknownTool, UnknownUpstream
from ringback.domain.upstreams import ToolInfo, UpstreamInfo
from ringback.runner.arguments import ArgumentChecker

AGE_SECONDS_MAX: Final = 300.0
"""For upstreams that do not tell of changes."""
REFUSING_AGE_SECONDS_MAX: Final = 2.0
"""A list this old may refuse a tool. Short, because the tool may be new; not 0, because a client may ask in a loop."""
FIRST_LIST_SECONDS: Final = 2.0
"""How long a call waits at most for a list that is just being fetched for the first time."""
TOOLS_SECONDS: Final = 5.0
"""The same for somebody who asked for the list."""
_NAME_LENGTH_MAX: Final = 64


class Listed(Protocol):
    """What the catalog needs of a connection."""

    def info(self) -> UpstreamInfo: ...

    def known_tools(self) -> Mapping[str, ToolInfo]:
        """The tools by name, as they were listed last."""
        ...

    def inline_wait_seconds(self, tool: str) -> float | None:
        """As configured, for this tool or for all."""
        ...

    def task_only(self, tool: str) -> bool:
        """As configured."""
        ...

    async def settled(self, patience_seconds: float) -> None:
        """Wait until it is known whether the upstream can be reached, but no longer than that."""
        ...

    async def tools(self, *, age_seconds_max: float) -> Mapping[str, ToolInfo] | None:
        """The tools by name, asked for again when the list is older than that, or changed; None when never reached."""
        ...

    async def fresh_tools(self, *, age_seconds_max: float) -> Mapping[str, ToolInfo] | None:
        """The same, and None when they cannot be asked for now."""
        ...


class UpstreamCatalog:
    """Implements `domain.upstreams.Catalog`."""

    def __init__(self, connections: Mapping[str, Listed], superseded: Collection[Listed] = ()) -> None:
        """Calls may still be running on `superseded` connections, which nothing else is asked of."""
        self._connections = connections
        self._superseded = superseded
        self._checkers: dict[str, _Checkers] = {}

    def upstreams(self) -> Sequence[UpstreamInfo]:
        ending = Counter[str]()
        for info in (connection.info() for connection in self._superseded):
            ending[info.name] += info.calls_in_flight
        infos = [connection.info() for connection in self._connections.values()]
        return [replace(info, calls_in_flight=info.calls_in_flight + ending[info.name]) for info in infos]

    async def tools(self, upstream: str) -> Sequence[ToolInfo]:
        connection = self._connection(upstream, visible=None)
        tools = await self._listed(connection, patience_seconds=TOOLS_SECONDS)
        if tools is None:
            raise Unavailable(f"Upstream '{upstream}' cannot be reached now. See how it is doing: GET /v1/upstreams")
        return list(tools.values())

    async def check(
        self, upstream: str, tool: str, arguments: Mapping[str, Any], *, visible: frozenset[str] | None
    ) -> None:
        connection = self._connection(upstream, visible=visible)
        tools = await self._listed(connection, patience_seconds=FIRST_LIST_SECONDS)
        if tools is None or self._objection(upstream, tool, arguments, tools) is None:
            return
        tools = await connection.fresh_tools(age_seconds_max=REFUSING_AGE_SECONDS_MAX)
        if tools is not None and (objection := self._objection(upstream, tool, arguments, tools)) is not None:
            raise objection

    def _objection(
        self, upstream: str, tool: str, arguments: Mapping[str, Any], tools: Mapping[str, ToolInfo]
    ) -> InvalidRequest | None:
        """What speaks against the call, if these are the tools."""
        if tool not in tools:
            return UnknownTool(_no_tool(upstream, tool, tools), tool=tool)
        if errors := self._checkers_of(upstream, tools).of(tool).errors(arguments):
            detail = "; ".join(f"{error['pointer']}: {error['detail']}" for error in errors)
            return InvalidArguments(
                f"The arguments do not match the inputSchema of '{tool}': {detail}. See it: GET /v1/upstreams/{upstream}/tools",
                tool=tool,
                errors=errors,
            )
        return None

    def may_repeat(self, upstream: str, tool: str) -> bool:
        connection = self._connections.get(upstream)
        if connection is None or not connection.info().trust_annotations:
            return False
        info = connection.known_tools().get(tool)
        annotations = info.raw.get("annotations") if info is not None else None
        if not isinstance(annotations, dict):
            return False
        hints = cast("dict[str, Any]", annotations)
        return hints.get("readOnlyHint") is True or hints.get("idempotentHint") is True

    def input_schema(self, upstream: str, tool: str) -> Mapping[str, Any] | None:
        connection = self._connections.get(upstream)
        info = None if connection is None else connection.known_tools().get(tool)
        return None if info is None else info.input_schema

    def inline_wait_seconds(self, upstream: str, tool: str) -> float | None:
        connection = self._connections.get(upstream)
        return None if connection is None else connection.inline_wait_seconds(tool)

    def task_only(self, upstream: str, tool: str) -> bool:
        connection = self._connections.get(upstream)
        return connection is not None and connection.task_only(tool)

    def _connection(self, upstream: str, *, visible: frozenset[str] | None) -> Listed:
        connection = self._connections.get(upstream)
        if connection is None or (visible is not None and upstream not in visible):
            names = [name for name in self._connections if visible is None or name in visible]
            raise UnknownUpstream(
                f"There is no upstream '{_short(upstream)}'.{_did_you_mean(upstream, names)} List them: GET /v1/upstreams",
                upstream=_short(upstream),
            )
        return connection

    async def _listed(self, connection: Listed, *, patience_seconds: float) -> Mapping[str, ToolInfo] | None:
        tools = await connection.tools(age_seconds_max=AGE_SECONDS_MAX)
        if tools is None:
            await connection.settled(patience_seconds)
            tools = await connection.tools(age_seconds_max=AGE_SECONDS_MAX)
        return tools

    def _checkers_of(self, upstream: str, tools: Mapping[str, ToolInfo]) -> "_Checkers":
        kept = self._checkers.get(upstream)
        if kept is None or kept.tools is not tools:
            self._checkers = {name: of for name, of in self._checkers.items() if name in self._connections}
            self._checkers[upstream] = kept = _Checkers(upstream, tools)
        return kept


class _Checkers:
    """Those of one list, made when they are first needed, and gone with it."""

    def __init__(self, upstream: str, tools: Mapping[str, ToolInfo]) -> None:
        self.tools = tools
        self._upstream = upstream
        self._made: dict[str, ArgumentChecker] = {}

    def of(self, tool: str) -> ArgumentChecker:
        if tool not in self._made:
            schema = self.tools[tool].input_schema
            self._made[tool] = ArgumentChecker(schema, upstream=self._upstream, tool=tool)
        return self._made[tool]


def _no_tool(upstream: str, tool: str, tools: Iterable[str]) -> str:
    return (
        f"Upstream '{upstream}' has no tool '{_short(tool)}'.{_did_you_mean(tool, tools)}"
        f" List them: GET /v1/upstreams/{upstream}/tools"
    )


def _did_you_mean(wanted: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(_short(wanted), list(names), n=1)
    return f" Did you mean '{close[0]}'?" if close else ""


def _short(text: str) -> str:
    return text if len(text) <= _NAME_LENGTH_MAX else f"{text[:_NAME_LENGTH_MAX]}…"
