"""Calls over REST: start, list, read, take the result, cancel."""

from typing import Annotated, Final

from fastapi import APIRouter, Header, Path, Query, Response

from ringback.api.auth import Asking
from ringback.api.context import Behind
from ringback.api.guarded_route import GuardedRoute
from ringback.api.paging import page_of, position
from ringback.api.problems import GUARDED, WITH_BODY, documented
from ringback.api.raw_results import MEDIA_TYPE, with_result
from ringback.api.schemas import examples
from ringback.api.schemas.calls import (
    CallPageView,
    CallsQuestion,
    CallView,
    StartCallBody,
    StartedCallView,
    WaitQuestion,
)
from ringback.domain import errors
from ringback.domain.cursor import List

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

IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match", description="An ETag you already have.")]


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
            errors.ShuttingDown,
        ),
    },
)
async def start_call(
    body: StartCallBody, behind: Behind, caller: Asking, idempotency_key: IdempotencyKey = None
) -> Response:
    """Start a tool call. Once this answers, the call is stored and runs, whatever becomes of you.

    A key that was used before answers with its call, and with `Idempotent-Replayed: true`.
    """
    started = await behind.calls.start(caller, body.request(idempotency_key=idempotency_key))
    call, result = await behind.calls.wait(caller, started.call, wait_seconds=body.wait_seconds)
    headers = {"Location": f"/v1/calls/{call.id}"}
    if not started.created:
        headers["Idempotent-Replayed"] = "true"
    view = StartedCallView.of(started, call)
    return with_result(view, result, status_code=200 if call.final else 202, headers=headers)


@router.get("", responses=documented(*GUARDED, errors.InvalidRequest, errors.InvalidCursor))
async def list_calls(question: Annotated[CallsQuestion, Query()], behind: Behind, caller: Asking) -> CallPageView:
    """List your calls, newest first: also the way back when you know nothing but your own ids."""
    before = position(List.CALLS, question.cursor)
    found = await behind.calls.page(caller, question.where(), before=before, limit=question.limit + 1)
    page = page_of(List.CALLS, found, limit=question.limit)
    return CallPageView.of(page.things, page.next_cursor)


@router.get("/{call_id}", responses=documented(*GUARDED, errors.NotFound, errors.CallExpired, errors.InvalidRequest))
async def read_call(
    call_id: CallIdPath, question: Annotated[WaitQuestion, Query()], behind: Behind, caller: Asking
) -> CallView:
    """Read a call; with `wait_seconds`, as soon as its status changes."""
    return CallView.of(await behind.calls.get(caller, call_id, wait_seconds=question.wait_seconds))


@router.get(
    "/{call_id}/result",
    response_class=Response,
    responses={
        200: {
            "description": "The stored CallToolResult, byte for byte as every other answer shows it.",
            "headers": {"ETag": {"description": "The result's SHA-256.", "schema": {"type": "string"}}},
            "content": {MEDIA_TYPE: {"schema": {"type": "object"}, "example": examples.RESULT}},
        },
        304: {"description": "It is still the one you have."},
        **documented(*GUARDED, errors.NotFound, errors.CallExpired, errors.ResultNotReady),
    },
)
async def read_result(
    call_id: CallIdPath, behind: Behind, caller: Asking, if_none_match: IfNoneMatch = None
) -> Response:
    """Take the result. A call that has none answers 409 and says why."""
    call, result = await behind.calls.result(caller, call_id)
    etag = f'"{call.result_sha256}"'
    if _matches(if_none_match, etag):
        return Response(status_code=304, headers={"ETag": etag})
    return Response(result, headers={"ETag": etag}, media_type=MEDIA_TYPE)


@router.post("/{call_id}/cancel", responses=documented(*GUARDED, errors.NotFound, errors.CallExpired))
async def cancel_call(call_id: CallIdPath, behind: Behind, caller: Asking) -> CallView:
    """Ask for the end of a call. May be repeated; on a call that has ended it changes nothing.

    A queued call ends at once. One that runs is asked to stop, and its status tells by itself how it ended.
    """
    return CallView.of(await behind.calls.cancel(caller, call_id))


def _matches(if_none_match: str | None, etag: str) -> bool:
    """Weak comparison, as If-None-Match asks for (RFC 9110 §13.1.2)."""
    given = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    return etag in given or given == ["*"]
