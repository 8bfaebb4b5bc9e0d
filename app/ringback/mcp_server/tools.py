"""tools/list and tools/call.

Tools go out as their upstream lists them, but for an outputSchema that allows a pending result (`tool_shape`) and for what the
features change of them; ours stand behind them. A call is stored before anything else, then answered by `answers`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from ringback.domain.call import Call
from ringback.domain.errors import InvalidArguments
from ringback.domain.principal import Scope
from ringback.domain.upstreams import Listing
from ringback.mcp_server import meta
from ringback.mcp_server.answers import Answering
from ringback.mcp_server.callbacks import callback_in
from ringback.mcp_server.disconnects import Waiting, WaitingRequests, cancel, ends_with_its_stream, leave, uncut
from ringback.mcp_server.exchange import Exchange
from ringback.mcp_server.gateway import Capabilities, Era, Feature, Gateway, Method, OwnTool, Result, TaskAnswers
from ringback.mcp_server.questions import Questions
from ringback.mcp_server.refusals import refused_result, task_required
from ringback.mcp_server.relay import LogLevels
from ringback.mcp_server.routes import Entry, Routes
from ringback.mcp_server.tool_shape import exported
from ringback.services.calls import StartCall

LIST_TTL_MILLISECONDS: Final = 60_000
"""How long a client may go by a list without asking; a client that listens is told of changes at once."""


def feature(gateway: Gateway, features: Sequence[Feature], *, levels: LogLevels) -> Feature:
    """`features` are all others: what they add to tools and to the answer of a call."""
    tools = Tools(gateway, features, levels=levels)
    return Feature(
        methods=(
            Method(name="tools/list", params=types.PaginatedRequestParams, handler=tools.list),
            Method(name="tools/call", params=types.CallToolRequestParams, handler=tools.call),
        ),
        notifications={"notifications/cancelled": tools.waiting.cancelled},
        advertise=_advertise,
    )


class Tools:
    def __init__(self, gateway: Gateway, features: Sequence[Feature], *, levels: LogLevels) -> None:
        self._gateway = gateway
        self._features = features
        self._own: Mapping[str, OwnTool] = {tool.definition["name"]: tool for each in features for tool in each.tools}
        self._routes = Routes(gateway)
        self._questions = Questions(gateway)
        self._answering = Answering(gateway, questions=self._questions, levels=levels)
        self.waiting = WaitingRequests(gateway)

    # -- tools/list --

    async def list(self, exchange: Exchange, params: types.PaginatedRequestParams) -> Result:
        exchange.caller.require(Scope.READ)
        refuse_cursor(params)
        entries = await self._routes.entries(exchange, Listing.TOOLS)
        # Those of a Ringback behind us would look for its calls, which are not ours.
        tools = [self._shaped(exchange, entry) for entry in entries if entry.shown["name"] not in self._own]
        own = [dict(tool.definition) for tool in self._own.values()]
        return {"tools": [*tools, *own], "ttlMs": LIST_TTL_MILLISECONDS, "cacheScope": "private"}

    def _shaped(self, exchange: Exchange, entry: Entry) -> dict[str, Any]:
        shaped = exported(entry.shown, modern=exchange.modern)
        for feature in self._features:
            shaped = feature.shape_tool(exchange, shaped)
        if "execution" in shaped and self._gateway.catalog.task_only(entry.upstream, entry.original):
            shaped["execution"] = {"taskSupport": "required"}
        return shaped

    # -- tools/call --

    async def call(self, exchange: Exchange, params: types.CallToolRequestParams) -> Result:
        if own := self._own.get(params.name):
            return await own.handler(exchange, params.arguments or {})
        upstream, tool = await self._routes.find(exchange, Listing.TOOLS, params.name)
        tasks, window_seconds = self._window(exchange, upstream, tool)
        with self.waiting.request(exchange) as waiting:
            try:
                call = await uncut(self._taken_on(exchange, params, upstream, tool, window_seconds, waiting))
            except InvalidArguments as problem:
                if tasks is not None and tasks.at_once:
                    raise  # who takes nothing but a task could not read a result
                return refused_result(problem.detail)  # SEP-1303
            try:
                return await self._answering.answer(exchange, call, tasks, window_seconds)
            except anyio.get_cancelled_exc_class():
                await uncut(self._abandoned(exchange, call))
                raise

    def _window(self, exchange: Exchange, upstream: str, tool: str) -> tuple[TaskAnswers | None, float]:
        """How long the plain result is waited for, and who answers in its place if the client takes tasks."""
        for feature in self._features:
            if feature.tasks is not None and (grace := feature.tasks.grace_seconds(exchange)) is not None:
                return feature.tasks, grace
        if self._gateway.catalog.task_only(upstream, tool):
            raise task_required(modern=exchange.modern)
        configured = self._gateway.catalog.inline_wait_seconds(upstream, tool)
        return None, self._gateway.config.inline_wait_seconds if configured is None else configured

    async def _taken_on(
        self,
        exchange: Exchange,
        params: types.CallToolRequestParams,
        upstream: str,
        tool: str,
        window_seconds: float,
        waiting: Waiting,
    ) -> Call:
        """The call, stored. Not to be cut off: what becomes of it when the client leaves is decided once it is known."""
        if params.request_state is not None:
            call = await self._questions.resumed(exchange, params.request_state, upstream=upstream, tool=tool)
        else:
            request = _request(exchange, params, upstream, tool, window_seconds)
            call = (await self._gateway.calls.start(exchange.caller, request)).call
        waiting.call_id = call.id
        if waiting.cancelled:
            await cancel(self._gateway, exchange, call.id)
        return call

    async def _abandoned(self, exchange: Exchange, call: Call) -> None:
        """Of a client of before 2026-07-28 it is not known here why; `waiting` is told if it wants the call cancelled."""
        if self._gateway.lifecycle.stopping.is_set():
            return
        if ends_with_its_stream(self._gateway, exchange):
            await cancel(self._gateway, exchange, call.id)
        elif exchange.modern:
            await leave(self._gateway, exchange, call.id)


def _request(
    exchange: Exchange, params: types.CallToolRequestParams, upstream: str, tool: str, window_seconds: float
) -> StartCall:
    callback = callback_in(exchange.meta)
    return StartCall(
        upstream=upstream,
        tool=tool,
        arguments=params.arguments or {},
        meta=meta.for_upstream(exchange.meta),
        client_session_id=meta.client_session_id(exchange.meta),
        correlation_id=meta.correlation_id(exchange.meta),
        idempotency_key=meta.idempotency_key(exchange.meta),
        callback=callback,
        wait_seconds=window_seconds,
        # A question is rung for as well, and may be answered over REST.
        accepts_input=callback is not None or exchange.elicits(frozenset()),
    )


def refuse_cursor(params: types.PaginatedRequestParams) -> None:
    """Every list is one page."""
    if params.cursor is not None:
        raise MCPError(INVALID_PARAMS, "This is not a cursor of ours: all lists come whole. Ask without one.")


def _advertise(_era: Era, capabilities: Capabilities) -> None:
    capabilities.setdefault("tools", {})
