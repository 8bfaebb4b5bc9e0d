"""Answers over REST: what a tool wants to know in the middle of a call."""

from typing import Annotated

from fastapi import APIRouter, Path

from ringback.api.auth import CallerDep
from ringback.api.context import ServicesDep
from ringback.api.guarded_route import AuthenticatedRoute
from ringback.api.problems import AUTHENTICATED_ERRORS, BODY_ERRORS, problem_responses
from ringback.api.schemas import examples
from ringback.api.schemas.answers import AnswerBody, AnsweredView
from ringback.domain import errors

router = APIRouter(prefix="/v1/calls", tags=["calls"], route_class=AuthenticatedRoute)

CallIdPath = Annotated[str, Path(description="A call's id.", examples=[examples.CALL_ID])]


@router.post(
    "/{call_id}/input",
    responses=problem_responses(*AUTHENTICATED_ERRORS, *BODY_ERRORS, errors.NotFound, errors.CallExpired, errors.CallEnded),
)
async def answer_call(call_id: CallIdPath, body: AnswerBody, behind: ServicesDep, caller: CallerDep) -> AnsweredView:
    """Answer what the call asks: all of it, or some of it now and the rest later. It goes on once nothing is open.

    May be repeated. What is not asked, or not any more, is ignored and named.
    """
    return AnsweredView.from_answer(await behind.input_answers.answer_input(caller, call_id, body.responses))
