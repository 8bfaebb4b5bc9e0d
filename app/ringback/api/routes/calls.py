"""Calls over REST: start, list, read, join and cancel them; answer their questions."""

from contextlib import suppress
from typing import Annotated, Final

from fastapi import APIRouter, Header, Path, Query, Request, Response

from ringback.api.authentication import CALLER_SECURITY, AuthenticatedRoute, CallerDep, StrictJsonRequest
from ringback.api.context import ServicesDep
from ringback.api.idempotency_keys import IDEMPOTENCY_KEY_HEADER, require_own_keys
from ringback.api.operator_access import ListCallerDep, OwnerCallerDep
from ringback.api.problems import AUTHENTICATED_ERRORS, BODY_ERRORS, problem_responses
from ringback.api.responses import REPLAYED_HEADER, build_result_response
from ringback.domain import errors
from ringback.domain.call import Call
from ringback.domain.cursor import CursorList, decode_id_cursor, encode_next_cursor
from ringback.domain.principal import Caller
from ringback.schemas import examples
from ringback.schemas.call_histories import CallHistoryView
from ringback.schemas.call_requests import (
    AnswerBody,
    CallListQuery,
    CancelCallsBody,
    JoinCallsBody,
    StartBatchBody,
    StartCallBody,
    WaitQuery,
)
from ringback.schemas.calls import (
    AnsweredView,
    CallPageView,
    CallView,
    CancelledCallsView,
    JoinedCallsView,
    StartedBatchView,
    StartedCallView,
)
from ringback.schemas.fields import IDEMPOTENCY_KEY_LENGTH_MAX, PRINTABLE_ASCII
from ringback.services.calls.new_calls import StartedCall
from ringback.services.limits.unread_responses import has_memory_for
from ringback.waits import run_with_helper

_KEYS_ADVICE: Final = "Give each of its calls an `idempotency_key`. Then the whole request can be repeated."
_START_ERRORS = (
    errors.UnknownUpstream,
    errors.UnknownTool,
    errors.InvalidArguments,
    errors.InvalidCallbackUrl,
    errors.IdempotencyConflict,
    errors.CallExpired,
    errors.QuotaExceeded,
    errors.ShuttingDown,
    errors.UpstreamDraining,
)

router = APIRouter(prefix="/v1/calls", tags=["calls"], route_class=AuthenticatedRoute)

CallIdPath = Annotated[str, Path(description="A call's id.", examples=[examples.CALL_ID])]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias=IDEMPOTENCY_KEY_HEADER,
        min_length=1,
        max_length=IDEMPOTENCY_KEY_LENGTH_MAX,
        pattern=PRINTABLE_ASCII,
        description="Repeating a request with the same key returns the same call.",
    ),
]


@router.post(
    "",
    status_code=202,
    response_model=StartedCallView,
    response_description="The call is stored and runs, also after you disconnect.",
    responses={
        200: {"model": StartedCallView, "description": "The call ended during `wait_seconds`, or had already ended."},
        **problem_responses(*AUTHENTICATED_ERRORS, *BODY_ERRORS, *_START_ERRORS),
    },
    openapi_extra=CALLER_SECURITY,
)
async def start_call(
    body: StartCallBody, request: StrictJsonRequest, idempotency_key: IdempotencyKey = None
) -> Response:
    """Start a tool call. After this response, the call is stored and runs, also if you disconnect.

    For a key that was used before, the response shows its call and the header `Idempotent-Replayed: true`.
    """
    services, caller = request.services, request.caller
    started = await services.calls.start_call(caller, body.to_request(idempotency_key=idempotency_key))
    with services.calls.attend(started.call) as attended:
        call, result = await _wait_for_end(request, started, body.wait_seconds)
        headers = {"Location": f"/v1/calls/{call.id}"}
        if not started.is_new:
            headers[REPLAYED_HEADER] = "true"
        view = StartedCallView.from_started(started, call, is_paused=await services.upstream_controls.is_paused(call))
        if result is not None and not has_memory_for(request.scope["state"], caller.principal, len(result)):
            return build_result_response(view, None, status_code=200, headers=headers)
        response = build_result_response(view, result, status_code=200 if call.is_final else 202, headers=headers)
        if call.is_final:
            attended.acknowledge_with_response(request.scope["state"], call)
        return response


async def _wait_for_end(
    request: StrictJsonRequest, started: StartedCall, wait_seconds: float
) -> tuple[Call, bytes | None]:
    wait = request.services.calls.wait_for_call(request.caller, started.call, wait_seconds=wait_seconds)
    if not started.is_new or wait_seconds <= 0:
        return await wait
    return await run_with_helper(
        wait, _mark_unattended_on_disconnect(request, request.services, request.caller, started)
    )


@router.post(
    "/batch",
    status_code=202,
    response_description="All calls are stored and run, also after you disconnect.",
    responses=problem_responses(*AUTHENTICATED_ERRORS, *BODY_ERRORS, *_START_ERRORS, errors.InvalidRequest),
)
async def start_calls(
    body: StartBatchBody, request: Request, services: ServicesDep, caller: CallerDep
) -> StartedBatchView:
    """Start up to 100 tool calls, all of them or none.

    If one is refused, the problem names it by `index`, and nothing was started. Each call may have its own idempotency key;
    with keys, the whole request can be repeated. Wait for the calls with POST /v1/calls/wait.
    """
    require_own_keys(request, (each.idempotency_key for each in body.calls), _KEYS_ADVICE)
    started = await services.calls.start_batch(caller, [each.to_request() for each in body.calls])
    paused = {each.call.id for each in started if await services.upstream_controls.is_paused(each.call)}
    return StartedBatchView.from_started(started, paused=paused)


@router.post(
    "/wait", responses=problem_responses(*AUTHENTICATED_ERRORS, *BODY_ERRORS, errors.NotFound, errors.CallExpired)
)
async def join_calls(body: JoinCallsBody, services: ServicesDep, caller: CallerDep) -> JoinedCallsView:
    """Wait for several calls: until any or all of them have ended, or `wait_seconds` have passed."""
    calls, done = await services.calls.join_calls(caller, body.call_ids, body.mode, wait_seconds=body.wait_seconds)
    return JoinedCallsView.from_calls(calls, done=done)


@router.post(
    "/cancel",
    responses=problem_responses(*AUTHENTICATED_ERRORS, *BODY_ERRORS, errors.InvalidRequest, errors.QuotaExceeded),
)
async def cancel_calls(body: CancelCallsBody, services: ServicesDep, caller: OwnerCallerDep) -> CancelledCallsView:
    """Request the end of your open calls that match all members; send at least one filter. At most 1,000 in one request.

    As with one call: a queued call ends at once, and the upstream of a running one gets a cancellation. Calls at upstreams that
    your key may not use are left out. With `dry_run` the response has the numbers and nothing changes.
    """
    return CancelledCallsView.from_cancellation(
        await services.bulk_cancellations.cancel_calls(caller, body.to_filter(), dry_run=body.dry_run)
    )


@router.get("", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.InvalidRequest, errors.InvalidCursor))
async def list_calls(
    query: Annotated[CallListQuery, Query()], services: ServicesDep, caller: ListCallerDep
) -> CallPageView:
    """List your calls, newest first. The filters find a call by your own ids."""
    position = decode_id_cursor(CursorList.CALLS, query.cursor)
    page = await services.calls.list_calls(caller, query.to_filter(), position=position, limit=query.limit)
    return CallPageView.from_calls(page, encode_next_cursor(CursorList.CALLS, page), shows_owner=caller.is_operator)


@router.get(
    "/{call_id}",
    responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound, errors.CallExpired, errors.InvalidRequest),
)
async def read_call(
    call_id: CallIdPath, query: Annotated[WaitQuery, Query()], services: ServicesDep, caller: OwnerCallerDep
) -> CallView:
    """Read a call. With `wait_seconds`, the response waits for a change of its status."""
    call = await services.calls.get_call(caller, call_id, wait_seconds=query.wait_seconds)
    return CallView.from_call(call, shows_owner=caller.is_operator)


@router.get(
    "/{call_id}/history", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound, errors.CallExpired)
)
async def read_call_history(call_id: CallIdPath, services: ServicesDep, caller: OwnerCallerDep) -> CallHistoryView:
    """Read what happened to a call: its events, its deliveries with their attempts, and when its client came back."""
    history = await services.call_histories.read_history(caller, call_id)
    return CallHistoryView.from_history(history, shows_owner=caller.is_operator)


@router.post(
    "/{call_id}/cancel", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound, errors.CallExpired)
)
async def cancel_call(call_id: CallIdPath, services: ServicesDep, caller: OwnerCallerDep) -> CallView:
    """Request the end of a call. Can be repeated; a call that has ended does not change.

    A queued call ends at once. For a running call, the upstream gets a cancellation; the status shows how the call then ends.
    """
    call = await services.calls.cancel_call(caller, call_id)
    return CallView.from_call(call, shows_owner=caller.is_operator)


async def _mark_unattended_on_disconnect(
    request: Request, services: ServicesDep, caller: Caller, started: StartedCall
) -> None:
    """Wait for the disconnect of the client, and record it."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    with suppress(errors.RingbackError):  # without the record, the client counts as connected
        await services.calls.mark_unattended(caller, started.call.id)


@router.post(
    "/{call_id}/input",
    responses=problem_responses(
        *AUTHENTICATED_ERRORS, *BODY_ERRORS, errors.NotFound, errors.CallExpired, errors.CallEnded
    ),
)
async def answer_call(call_id: CallIdPath, body: AnswerBody, services: ServicesDep, caller: CallerDep) -> AnsweredView:
    """Answer the open questions of a call, all or some of them. The call continues when no question is open.

    Can be repeated. Answers without an open question are ignored and listed. If an accepted answer does not match the
    `requestedSchema` of its question, none is taken: the response is a 422 whose `errors` name each place, with the
    `requested_schemas` of these questions, and the questions stay open.
    """
    return AnsweredView.from_answer(await services.input_answers.answer_input(caller, call_id, body.responses))
