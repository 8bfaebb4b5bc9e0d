"""Calls over REST: start, list, read, join, cancel."""

from contextlib import suppress
from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter, Header, Path, Query, Request, Response

from ringback.api.authentication import AuthenticatedRoute, CallerDep
from ringback.api.context import ServicesDep
from ringback.api.paging import build_page
from ringback.api.problems import AUTHENTICATED_ERRORS, BODY_ERRORS, problem_responses
from ringback.api.responses import build_result_response
from ringback.domain import errors
from ringback.domain.cursor import CursorList, decode_id_cursor
from ringback.domain.principal import Caller
from ringback.schemas import examples
from ringback.schemas.calls import (
    AnswerBody,
    AnsweredView,
    CallListQuery,
    CallPageView,
    CallView,
    JoinCallsBody,
    JoinedCallsView,
    StartCallBody,
    StartedCallView,
    WaitQuery,
)
from ringback.services.new_calls import StartedCall
from ringback.services.response_hooks import on_response_written
from ringback.waits import run_with_helper

IDEMPOTENCY_KEY_LENGTH_MAX: Final = 256
"""Room for several UUIDs, or for the client's own name of the work."""
PRINTABLE_ASCII: Final = r"^[\x20-\x7e]+$"

router = APIRouter(prefix="/v1/calls", tags=["calls"], route_class=AuthenticatedRoute)

CallIdPath = Annotated[str, Path(description="A call's id.", examples=[examples.CALL_ID])]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=IDEMPOTENCY_KEY_LENGTH_MAX,
        pattern=PRINTABLE_ASCII,
        description="The same key with the same request is the same call, however often it is sent.",
    ),
]


@router.post(
    "",
    status_code=202,
    response_model=StartedCallView,
    response_description="The call was taken on and goes on without you.",
    responses={
        200: {"model": StartedCallView, "description": "It ended while you waited, or had ended before."},
        **problem_responses(
            *AUTHENTICATED_ERRORS,
            *BODY_ERRORS,
            errors.UnknownUpstream,
            errors.UnknownTool,
            errors.InvalidArguments,
            errors.InvalidCallbackUrl,
            errors.IdempotencyConflict,
            errors.CallExpired,
            errors.QuotaExceeded,
            errors.ShuttingDown,
        ),
    },
)
async def start_call(
    body: StartCallBody,
    request: Request,
    behind: ServicesDep,
    caller: CallerDep,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Start a tool call. Once this answers, the call is stored and runs, whatever becomes of you.

    A key that was used before answers with its call, and with `Idempotent-Replayed: true`.
    """
    started = await behind.calls.start_call(caller, body.to_request(idempotency_key=idempotency_key))
    wait = behind.calls.wait_for_call(caller, started.call, wait_seconds=body.wait_seconds)
    is_attended = started.is_new and body.wait_seconds > 0
    call, result = await (
        run_with_helper(wait, _mark_unattended_on_disconnect(request, behind, caller, started)) if is_attended else wait
    )
    headers = {"Location": f"/v1/calls/{call.id}"}
    if not started.is_new:
        headers["Idempotent-Replayed"] = "true"
    view = StartedCallView.from_started(started, call)
    response = build_result_response(view, result, status_code=200 if call.is_final else 202, headers=headers)
    if call.is_final:
        on_response_written(request.scope["state"], partial(behind.calls.acknowledge_inline, call))
    return response


@router.post(
    "/wait", responses=problem_responses(*AUTHENTICATED_ERRORS, *BODY_ERRORS, errors.NotFound, errors.CallExpired)
)
async def join_calls(body: JoinCallsBody, behind: ServicesDep, caller: CallerDep) -> JoinedCallsView:
    """Wait for several calls at once: until any of them has ended, or all, or until the time is over."""
    calls, done = await behind.calls.join_calls(caller, body.call_ids, body.mode, wait_seconds=body.wait_seconds)
    return JoinedCallsView.from_calls(calls, done=done)


@router.get("", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.InvalidRequest, errors.InvalidCursor))
async def list_calls(query: Annotated[CallListQuery, Query()], behind: ServicesDep, caller: CallerDep) -> CallPageView:
    """List your calls, newest first: also the way back when you know nothing but your own ids."""
    position = decode_id_cursor(CursorList.CALLS, query.cursor)
    found = await behind.calls.list_calls(caller, query.to_filter(), position=position, limit=query.limit)
    page = build_page(CursorList.CALLS, found)
    return CallPageView.from_calls(page.items, page.next_cursor)


@router.get(
    "/{call_id}",
    responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound, errors.CallExpired, errors.InvalidRequest),
)
async def read_call(
    call_id: CallIdPath, query: Annotated[WaitQuery, Query()], behind: ServicesDep, caller: CallerDep
) -> CallView:
    """Read a call; with `wait_seconds`, as soon as its status changes."""
    return CallView.from_call(await behind.calls.get_call(caller, call_id, wait_seconds=query.wait_seconds))


@router.post(
    "/{call_id}/cancel", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound, errors.CallExpired)
)
async def cancel_call(call_id: CallIdPath, behind: ServicesDep, caller: CallerDep) -> CallView:
    """Ask for the end of a call. May be repeated; on a call that has ended it changes nothing.

    A queued call ends at once. One that runs is asked to stop, and its status tells by itself how it ended.
    """
    return CallView.from_call(await behind.calls.cancel_call(caller, call_id))


async def _mark_unattended_on_disconnect(
    request: Request, behind: ServicesDep, caller: Caller, started: StartedCall
) -> None:
    """Note that the client has hung up, as soon as it has."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    with suppress(errors.RingbackError):  # the store cannot be written: the client counts as one that stayed
        await behind.calls.mark_unattended(caller, started.call.id)


# Answers over REST: what a tool wants to know in the middle of a call.


@router.post(
    "/{call_id}/input",
    responses=problem_responses(
        *AUTHENTICATED_ERRORS, *BODY_ERRORS, errors.NotFound, errors.CallExpired, errors.CallEnded
    ),
)
async def answer_call(call_id: CallIdPath, body: AnswerBody, behind: ServicesDep, caller: CallerDep) -> AnsweredView:
    """Answer what the call asks: all of it, or some of it now and the rest later. It goes on once nothing is open.

    May be repeated. What is not asked, or not any more, is ignored and named.
    """
    return AnsweredView.from_answer(await behind.input_answers.answer_input(caller, call_id, body.responses))
