"""Questions of a tool put to a client of before 2026-07-28 that waits for its task: `elicitation/create` along tasks/result.

Every tasks/result that waits asks what is open, so a client that lost its stream is asked again when it comes back. The first
answer counts, whatever door it comes through; then the others are told that their question is off.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from ringback.domain.call import Call, InputRequest
from ringback.domain.ids import CallId
from ringback.mcp_server import meta
from ringback.mcp_server.elicitation import can_be_asked, put_question
from ringback.mcp_server.exchange import Exchange
from ringback.mcp_server.following import Following
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.task_shapes import related_task
from ringback.waits import first_of

WAITING_MAX: Final = 8
"""tasks/result requests of one session that wait for the same task. A stream that breaks leaves its request behind, unnoticed:
the oldest gives way to a client that comes back again and again."""


class Waiters:
    """Who waits for which task, in which session."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, CallId], list[asyncio.Event]] = {}

    @contextmanager
    def waiting(self, exchange: Exchange, call: Call) -> Generator[asyncio.Event]:
        """The event is set when this one has to give way."""
        key = exchange.session_id, call.id
        waiting = self._waiting.setdefault(key, [])
        if len(waiting) >= WAITING_MAX:
            waiting.pop(0).set()
        given_up = asyncio.Event()
        waiting.append(given_up)
        try:
            yield given_up
        finally:
            if given_up in waiting:
                waiting.remove(given_up)
            if not waiting:
                self._waiting.pop(key, None)


class Asking:
    """Puts to one waiting client what its task asks, until the task has ended or the service stops."""

    def __init__(self, gateway: Gateway, exchange: Exchange, calls: Following) -> None:
        self._gateway = gateway
        self._exchange = exchange
        self._calls = calls
        self._asked: dict[str, asyncio.Task[None]] = {}

    async def run(self, given_up: asyncio.Event) -> None:
        following = asyncio.ensure_future(self._follow())
        try:
            await first_of(asyncio.shield(following), given_up.wait(), self._gateway.lifecycle.stopping.wait())
            if given_up.is_set():
                raise MCPError(INTERNAL_ERROR, "Newer requests of this session wait for the task's result now.")
            if following.done():
                following.result()
        finally:
            following.cancel()
            for question in self._asked.values():
                question.cancel()
            await asyncio.gather(following, *self._asked.values(), return_exceptions=True)

    async def _follow(self) -> None:
        while (call := await self._calls.next()) and not call.final:
            for key, request in call.input_requests.items():
                if key not in self._asked and can_be_asked(self._exchange, [request]):
                    self._asked[key] = asyncio.create_task(self._put(call, key, request))
            for key in self._asked.keys() - call.input_requests.keys():
                self._asked[key].cancel()

    async def _put(self, call: Call, key: str, request: InputRequest) -> None:
        about = {**related_task(call), **meta.labels(call)}
        await put_question(self._gateway, self._exchange, call, key, request, about=about)
