"""Answers over REST: what a tool wants to know in the middle of a call."""

from typing import Annotated

from fastapi import APIRouter, Path

from ringback.api.auth import Asking
from ringback.api.context import Behind
from ringback.api.guarded_route import GuardedRoute
from ringback.api.problems import GUARDED, WITH_BODY, documented
from ringback.api.schemas import examples
from ringback.api.schemas.answers import AnswerBody, AnsweredView
from ringback.domain import errors

router = APIRouter(prefix="/v1/calls", tags=["calls"], route_class=GuardedRoute)

CallIdPath = Annotated[str, Path(description="A call's id.", examples=[examples.CALL_ID])]


@router.post(
    "/{call_id}/input",
    responses=documented(*GUARDED, *WITH_BODY, errors.NotFound, errors.CallExpired, errors.CallEnded),
)
async def answer_call(call_id: CallIdPath, body: AnswerBody, behind: Behind, caller: Asking) -> AnsweredView:
    """Answer what the call asks: all of it, or some of it now and the rest later. It goes on once nothing is open.

    May be repeated. What is not asked, or not any more, is ignored and named.
    """
    return AnsweredView.of(await behind.answers.answer(caller, call_id, body.responses))
