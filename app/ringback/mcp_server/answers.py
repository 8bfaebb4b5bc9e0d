"""The four answers to tools/call, whichever is due first.

    1  the call ends within the window          its plain result, or the JSON-RPC error that it ended with
    2  it asks within the window                InputRequiredResult, or elicitation/create on the waiting stream
    3  the client takes tasks                   a task: after the grace time, at once on 2025-11-25; and for whatever
                                                the upstream itself made a task of
    4  else, when the window is over            a pending result

The call itself goes on in any case.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

from mcp.shared.exceptions import MCPError

from ringback.domain import jsontext
from ringback.domain.call import Call, Outcome, Status, failed
from ringback.domain.upstreams import Told
from ringback.mcp_server import meta, pending
from ringback.mcp_server.disconnects import leave
from ringback.mcp_server.exchange import Exchange
from ringback.mcp_server.gateway import Gateway, Result, TaskAnswers
from ringback.mcp_server.questions import Questions, runs_as_task
from ringback.mcp_server.relay import LogLevels, Relay
from ringback.services.inline_answers import once_written
from ringback.waits import beside

LOOK_AGAIN_SECONDS: Final = 1.0
"""How often somebody who wants progress looks for what another process has stored of it; more is not stored."""
_CANCELLED: Final = failed(Outcome.CANCELLED, "The call was cancelled.")


class Answering:
    def __init__(self, gateway: Gateway, *, questions: Questions, levels: LogLevels) -> None:
        self._gateway = gateway
        self._questions = questions
        self._levels = levels

    async def answer(self, exchange: Exchange, call: Call, tasks: TaskAnswers | None, window_seconds: float) -> Result:
        """`tasks` is the generation that the client takes, and then the window is its grace time."""
        if tasks is not None and tasks.at_once:
            return await tasks.created(exchange, call)
        one = _OneAnswer(self._gateway, exchange, tasks, window_seconds, questions=self._questions)
        level = self._levels.wanted(exchange)
        with self._gateway.live.listen(call.id, log_level=level) as told:
            return await beside(one.answer(call), self._accompany(exchange, call, one.relay, told))

    async def _accompany(self, exchange: Exchange, call: Call, relay: Relay, told: AsyncIterator[Told]) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(relay.live(told))
            await exchange.left.wait()
            await leave(self._gateway, exchange, call.id)


class _OneAnswer:
    def __init__(
        self,
        gateway: Gateway,
        exchange: Exchange,
        tasks: TaskAnswers | None,
        window_seconds: float,
        *,
        questions: Questions,
    ) -> None:
        self._gateway = gateway
        self._exchange = exchange
        self._tasks = tasks
        self._window_seconds = window_seconds
        self._questions = questions
        self._ends_at = 0.0
        self.relay = Relay(exchange)

    async def answer(self, call: Call) -> Result:
        self._begin_window()
        while True:
            call, stored = await self._look(call)
            if self._tasks is not None and runs_as_task(call):
                break
            if call.final:
                once_written(self._exchange.state, partial(self._gateway.calls.told, call))
                return plain(call, stored)
            if call.status is Status.INPUT_REQUIRED:
                put = await self._put(call)
                if isinstance(put, dict):
                    return put
                if put is None:
                    break
                call = put
            elif self._over():
                break
        if self._tasks is not None:
            return await self._tasks.created(self._exchange, call)
        return pending.result(call)

    async def _put(self, call: Call) -> Call | Result | None:
        """The call as it goes on when its questions are answered, or what is answered so that they will be.

        None when this client cannot be asked, or does not say.
        """
        if not self._questions.can_be_put(self._exchange, call):
            return None
        if self._exchange.modern:
            foretold = await self._questions.foretold(self._exchange, call)
            return self._questions.required(self._exchange, call) if foretold is None else foretold
        if not await self._questions.put(self._exchange, call):
            return None
        self._begin_window()
        return await self._gateway.calls.started(self._exchange.caller, call.id)

    async def _look(self, call: Call) -> tuple[Call, bytes | None]:
        """The call as soon as its status is another, or a little later; at once when it asks something."""
        if call.status is Status.INPUT_REQUIRED:
            return call, None
        left = min(max(self._ends_at - self._gateway.clock.monotonic(), 0.0), LOOK_AGAIN_SECONDS)
        seen, stored = await self._gateway.calls.wait(self._exchange.caller, call, wait_seconds=left, until_final=False)
        await self.relay.stored(seen)
        return seen, stored

    def _begin_window(self) -> None:
        self._ends_at = self._gateway.clock.monotonic() + self._window_seconds

    def _over(self) -> bool:
        return self._gateway.lifecycle.stopping.is_set() or self._gateway.clock.monotonic() >= self._ends_at


def plain(call: Call, stored: bytes | None) -> Result:
    """What the upstream would have answered itself; raises the error that the call ended with."""
    if stored is not None:
        result: dict[str, Any] = jsontext.loads(stored)
        return meta.labelled(result, call)
    error = call.error or _CANCELLED.error or {}
    raise MCPError(error["code"], error["message"], error.get("data"))
