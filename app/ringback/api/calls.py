"""Calls over REST: start, list, read, join, cancel."""

from contextlib import suppress
from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter, Header, Path, Query, Request, Response

from ringback.api.auth import Asking
from ringback.api.context import Behind
from ringback.api.guarded_route import GuardedRoute
from ringback.api.paging import page_from
from ringback.api.problems import GUARDED, WITH_BODY, documented
from ringback.api.raw_results import with_result
from ringback.api.schemas import examples
from ringback.api.schemas.calls import (
    CallPageView,
    CallsQuestion,
    CallView,
    JoinCallsBody,
    JoinedCallsView,
    StartCallBody,
    StartedCallView,
    WaitQuestion,
)
from ringback.domain import errors
from ringback.domain.cursor import List, decode_id
from ringback.domain.principal import Caller
from ringback.services.inline_answers import once_written
from ringback.services.started import Started
from ringback.waits import beside

IDEMPOTENCY_KEY_LENGTH_MAX: Final = 256
"""Room for several UUIDs, or for the client's own name of the work."""
PRINTABLE_ASCII: Final = r"^[\x20-\x7e]+$"

router = APIRouter(prefix="/v1/calls", tags=["calls"], route_class=GuardedRoute)

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
        **documented(
            *GUARDED,
            *WITH_BODY,
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
    body: StartCallBody, request: Request, behind: Behind, caller: Asking, idempotency_key: IdempotencyKey = None
) -> Response:
    """Start a tool call. Once this answers, the call is stored and runs, whatever becomes of you.

    A key that was used before answers with its call, and with `Idempotent-Replayed: true`.
    """
    started = await behind.calls.start(caller, body.request(idempotency_key=idempotency_key))
    waiting = behind.calls.wait(caller, started.call, wait_seconds=body.wait_seconds)
    stays = started.created and body.wait_seconds > 0
    call, result = await (beside(waiting, _leaves(request, behind, caller, started)) if stays else waiting)
    headers = {"Location": f"/v1/calls/{call.id}"}
    if not started.created:
        headers["Idempotent-Replayed"] = "true"
    view = StartedCallView.of(started, call)
    answer = with_result(view, result, status_code=200 if call.final else 202, headers=headers)
    if call.final:
        once_written(request.scope["state"], partial(behind.calls.told, call))
    return answer


@router.post("/wait", responses=documented(*GUARDED, *WITH_BODY, errors.NotFound, errors.CallExpired))
async def join_calls(body: JoinCallsBody, behind: Behind, caller: Asking) -> JoinedCallsView:
    """Wait for several calls at once: until any of them has ended, or all, or until the time is over."""
    calls, done = await behind.calls.join(caller, body.call_ids, body.mode, wait_seconds=body.wait_seconds)
    return JoinedCallsView.of(calls, done=done)


@router.get("", responses=documented(*GUARDED, errors.InvalidRequest, errors.InvalidCursor))
async def list_calls(question: Annotated[CallsQuestion, Query()], behind: Behind, caller: Asking) -> CallPageView:
    """List your calls, newest first: also the way back when you know nothing but your own ids."""
    before = decode_id(List.CALLS, question.cursor)
    found = await behind.calls.page(caller, question.where(), before=before, limit=question.limit)
    page = page_from(List.CALLS, found)
    return CallPageView.of(page.things, page.next_cursor)


@router.get("/{call_id}", responses=documented(*GUARDED, errors.NotFound, errors.CallExpired, errors.InvalidRequest))
async def read_call(
    call_id: CallIdPath, question: Annotated[WaitQuestion, Query()], behind: Behind, caller: Asking
) -> CallView:
    """Read a call; with `wait_seconds`, as soon as its status changes."""
    return CallView.of(await behind.calls.get(caller, call_id, wait_seconds=question.wait_seconds))


@router.post("/{call_id}/cancel", responses=documented(*GUARDED, errors.NotFound, errors.CallExpired))
async def cancel_call(call_id: CallIdPath, behind: Behind, caller: Asking) -> CallView:
    """Ask for the end of a call. May be repeated; on a call that has ended it changes nothing.

    A queued call ends at once. One that runs is asked to stop, and its status tells by itself how it ended.
    """
    return CallView.of(await behind.calls.cancel(caller, call_id))


async def _leaves(request: Request, behind: Behind, caller: Caller, started: Started) -> None:
    """Note that the client has hung up, as soon as it has."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    with suppress(errors.RingbackError):  # the store cannot be written: the client counts as one that stayed
        await behind.calls.leave(caller, started.call.id)
