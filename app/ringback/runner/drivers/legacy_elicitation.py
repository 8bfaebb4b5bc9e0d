"""Elicitations in a legacy session: the upstream sends a request while its tool runs, and waits for the answer.

    upstream ──elicitation/create──▶ relay ──request_input──▶ the call is input_required; callbacks are sent …hours…
             ◀────── response ────── relay ◀──wait_for_answers── POST /v1/calls/{id}/input

`upstreams.elicitation_router` passes a question to the relay only if it certainly belongs to the relay's call. The name of a
question is the id of the upstream's request, so another process can answer it over the same session. A question that cannot be
kept, because it is too large or one of thousands for example, is refused: the tool gets an error and goes on.
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from ringback.domain.call import MRTR_DRIVER, Call
from ringback.domain.inputs import check_input_requests, require_further_round
from ringback.domain.login_waits import awaits_login
from ringback.protocol.errors import LoginRequired, RequestFailed, RequestNotSent, ResponseLost, TokensUnreadable
from ringback.protocol.upstream_logins import LOGIN_REQUEST_KEY
from ringback.runner.drivers.driver import CallContext
from ringback.upstreams.session_ports import LegacySessionPort
from ringback.waits import LocalWaiter, run_with_helper, wait_first

T = TypeVar("T")

ANSWER_POLL_SECONDS: Final = 60.0
"""The longest delay of an answer whose notification is lost."""

_LOGIN_REQUIRED: Final = "The upstream required a new login while the tool waited for an answer. The tool may have run."
_NOT_ANSWERED: Final = "The upstream may not have received the answer that the tool waited for. The tool may have run."


async def run_with_elicitations(
    get_legacy_session: Callable[[], LegacySessionPort], context: CallContext, work: Coroutine[Any, Any, T]
) -> T:
    """Return the result of `work` while the relay runs.

    `get_legacy_session` returns the session that the last request of `work` went to.
    """
    if not context.call.accepts_input:
        return await work
    relay = _ElicitationRelay(get_legacy_session, context)
    with get_legacy_session().handle_elicitations(relay.on_elicitation):
        return await run_with_helper(work, relay.run())


async def withdraw_login_request(context: CallContext) -> None:
    """Withdraw the request to sign in, if there is one: the upstream has accepted a request of the call, sent as a check."""
    if awaits_login(context.call):
        await context.request_input(_list_questions(context.call))


def _list_questions(call: Call) -> dict[str, Mapping[str, Any]]:
    """The upstream's open questions by its own names, without Ringback's request to sign in."""
    return {
        request.name: {"method": request.method, "params": request.params}
        for key, request in call.input_requests.items()
        if key != LOGIN_REQUEST_KEY
    }


class _ElicitationRelay:
    def __init__(self, get_legacy_session: Callable[[], LegacySessionPort], context: CallContext) -> None:
        self._get_legacy_session = get_legacy_session
        self._context = context
        self._changed = LocalWaiter()
        # Questions that an earlier process stored stay open: their answers go to the same session.
        self._pending = _list_questions(context.call)

    def on_elicitation(self, name: str, request: Mapping[str, Any] | None) -> None:
        """Implements `OnElicitation`."""
        if request is None:
            self._pending.pop(name, None)
        else:
            self._require_storable(name, request)
            self._pending[name] = request
        self._changed.notify()

    def _require_storable(self, name: str, request: Mapping[str, Any]) -> None:
        try:
            check_input_requests({**self._pending, name: request})
            require_further_round(self._context.call, waiting=len(self._pending))
        except ValueError as problem:
            raise MCPError(INVALID_PARAMS, f"The question was not asked. {problem}") from None

    async def run(self) -> None:
        while True:
            if answers := await self._context.wait_for_answers(0):
                await self._send_answers(answers)
            await self._request_input()
            await wait_first(self._changed.wait(), self._context.wait_for_answers(ANSWER_POLL_SECONDS))

    async def _send_answers(self, answers: Mapping[str, Any]) -> None:
        for name, answer in answers.items():
            await self._send_answer(name, answer)
            self._pending.pop(name, None)
        await self._context.mark_answers_sent(answers)

    async def _send_answer(self, name: str, answer: Mapping[str, Any]) -> None:
        """Raises `RequestNotSent` if the next session can send the answer again, else `ResponseLost`: the tool runs already."""
        try:
            await self._get_legacy_session().answer_elicitation(name, answer)
        except RequestFailed as failure:
            handle = self._context.call.handle
            # The handle of a round sends the call again, and joins no session.
            if handle is None or handle.driver == MRTR_DRIVER:
                requires_login = isinstance(failure, LoginRequired) and not isinstance(failure, TokensUnreadable)
                raise ResponseLost(_LOGIN_REQUIRED if requires_login else _NOT_ANSWERED) from None
            if isinstance(failure, RequestNotSent):
                raise
            raise RequestNotSent(_NOT_ANSWERED) from None

    async def _request_input(self) -> None:
        """Store what the upstream has asked or withdrawn.

        Until then a call that was sent without a login (`domain.login_checks`) keeps its request to sign in.
        """
        if self._pending.keys() != _list_questions(self._context.call).keys():
            await self._context.request_input(dict(self._pending))
