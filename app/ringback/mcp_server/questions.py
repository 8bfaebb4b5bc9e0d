"""Questions of a tool put to the client that waits for its answer.

    2026-07-28   the answer is an InputRequiredResult under the upstream's own keys, and the client sends its request again
                 with the responses. The requestState names the call and, for each of these keys, the call's own
    before       `elicitation/create` on the stream of the waiting request

Whoever cannot be asked, or does not answer, gets a pending result; the questions stay open for every other door. The call's own
keys (`domain.inputs`) are never used twice, so an answer that comes late answers nothing by mistake.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from ringback.domain.call import Call
from ringback.domain.errors import CallEnded
from ringback.mcp_server import meta
from ringback.mcp_server.elicitation import can_be_asked, put_question
from ringback.mcp_server.exchange import Exchange
from ringback.mcp_server.gateway import Gateway, Result
from ringback.mcp_server.request_state import opened, sealed, unknown_state
from ringback.waits import first_of

ANSWER_SECONDS: Final = 50.0
"""How long a user may take while the client waits; then it is told where to answer. Clients give up after 60 s."""


class Questions:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def can_be_put(self, exchange: Exchange, call: Call) -> bool:
        """Whether this client, in this request, can be asked what the call asks now."""
        return can_be_asked(exchange, call.input_requests.values())

    # -- 2026-07-28 --

    def required(self, exchange: Exchange, call: Call) -> Result:
        """An InputRequiredResult."""
        asked = {each.name: {"method": each.method, "params": each.params} for each in call.input_requests.values()}
        keys = {each.name: key for key, each in call.input_requests.items()}
        state = sealed(self._gateway, exchange, {"call_id": call.id, "keys": keys})
        return meta.labelled({"resultType": "input_required", "inputRequests": asked, "requestState": state}, call)

    async def resumed(self, exchange: Exchange, state: str, *, upstream: str, tool: str) -> Call:
        """The call of a request that is sent again, with the responses taken that it brings."""
        carried = opened(self._gateway, exchange, state)
        call = await self._gateway.calls.started(exchange.caller, carried["call_id"])
        if (call.upstream, call.tool) != (upstream, tool):
            raise unknown_state()
        return await self._answered(exchange, call, carried["keys"])

    async def foretold(self, exchange: Exchange, call: Call) -> Call | None:
        """The call with the answers taken that the request that began it brought along; None when it brought none.

        A client that knows what a tool asks first may answer unasked (SEP-2322).
        """
        if call.input_round > 1 or (exchange.context.params or {}).get("requestState") is not None:
            return None
        answered = await self._answered(exchange, call, {each.name: key for key, each in call.input_requests.items()})
        return None if answered is call else answered

    async def _answered(self, exchange: Exchange, call: Call, keys: Mapping[str, str]) -> Call:
        """The call after what the request answers, by the upstream's keys; what is not asked is ignored."""
        brought: dict[str, Any] = (exchange.context.params or {}).get("inputResponses") or {}
        responses = {keys[name]: response for name, response in brought.items() if name in keys}
        if not responses or call.final:
            return call
        try:
            return (await self._gateway.answers.answer(exchange.caller, call.id, responses)).call
        except CallEnded:
            return await self._gateway.calls.started(exchange.caller, call.id)

    # -- before --

    async def put(self, exchange: Exchange, call: Call) -> bool:
        """Ask everything that is open, all at once; whether the call goes on then.

        The first answer counts, whatever door it comes through; what is still asked here then is taken back.
        """
        about = meta.labels(call)
        answers = asyncio.gather(
            *(
                put_question(self._gateway, exchange, call, key, each, about=about)
                for key, each in call.input_requests.items()
            )
        )
        moved = asyncio.ensure_future(
            self._gateway.calls.wait(exchange.caller, call, wait_seconds=ANSWER_SECONDS, until_final=False)
        )
        try:
            await first_of(asyncio.shield(answers), asyncio.shield(moved))
            return moved.result()[0].status is not call.status if moved.done() else all(answers.result())
        finally:
            answers.cancel()
            moved.cancel()
            await asyncio.gather(answers, moved, return_exceptions=True)


def runs_as_task(call: Call) -> bool:
    """Whether the upstream made a task of it: then what it asks belongs to the task."""
    return call.handle is not None and "task_id" in call.handle.data
