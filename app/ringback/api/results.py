"""Results over REST: whole, in part, or only whether they have changed."""

from typing import Annotated

from fastapi import APIRouter, Header, Response

from ringback.api.auth import Asking
from ringback.api.calls import CallIdPath
from ringback.api.context import Behind
from ringback.api.guarded_route import GuardedRoute
from ringback.api.problems import GUARDED, RangeNotSatisfiable, documented
from ringback.api.ranges import range_of, still_current
from ringback.api.raw_results import MEDIA_TYPE
from ringback.api.schemas import examples
from ringback.domain import errors

router = APIRouter(prefix="/v1/calls", tags=["calls"], route_class=GuardedRoute)

IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match", description="An ETag you already have.")]
Range = Annotated[
    str | None, Header(alias="Range", description="One range of bytes; several are answered with the whole.")
]
IfRange = Annotated[
    str | None, Header(alias="If-Range", description="The ETag that you have a part of. Another result is sent whole.")
]

_ETAG = {"ETag": {"description": "The result's SHA-256.", "schema": {"type": "string"}}}
_RESULT = {MEDIA_TYPE: {"schema": {"type": "object"}, "example": examples.RESULT}}
_PART = {MEDIA_TYPE: {"schema": {"type": "string"}, "example": '{"content":[{"type":'}}
_UNCHANGED = {304: {"description": "It is still the one you have."}}


@router.get(
    "/{call_id}/result",
    response_class=Response,
    responses={
        200: {
            "description": "The stored CallToolResult, byte for byte as every other answer shows it.",
            "headers": _ETAG,
            "content": _RESULT,
        },
        206: {
            "description": "The part that was asked for.",
            "headers": {**_ETAG, "Content-Range": {"schema": {"type": "string"}}},
            "content": _PART,
        },
        **_UNCHANGED,
        **documented(*GUARDED, errors.NotFound, errors.CallExpired, errors.ResultNotReady, RangeNotSatisfiable),
    },
)
async def read_result(
    call_id: CallIdPath,
    behind: Behind,
    caller: Asking,
    if_none_match: IfNoneMatch = None,
    range_: Range = None,
    if_range: IfRange = None,
) -> Response:
    """Take the result. A call that has none answers 409 and says why."""
    call, result = await behind.calls.result(caller, call_id)
    headers = _headers(call.result_sha256)
    if _matches(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    part = range_of(range_, size=len(result)) if still_current(if_range, headers["ETag"]) else None
    if part is None:
        return Response(result, headers=headers, media_type=MEDIA_TYPE)
    headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{len(result)}"
    return Response(result[part.start : part.stop], status_code=206, headers=headers, media_type=MEDIA_TYPE)


@router.head(
    "/{call_id}/result",
    response_class=Response,
    responses={
        200: {"description": "There is a result; Content-Length is its size.", "headers": _ETAG, "content": {}},
        **_UNCHANGED,
        **documented(*GUARDED, errors.NotFound, errors.CallExpired, errors.ResultNotReady),
    },
)
async def look_at_result(
    call_id: CallIdPath, behind: Behind, caller: Asking, if_none_match: IfNoneMatch = None
) -> Response:
    """Ask for the size and the ETag of a result, without the result."""
    call, result = await behind.calls.result(caller, call_id)
    headers = _headers(call.result_sha256)
    if _matches(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(headers={**headers, "Content-Length": str(len(result))}, media_type=MEDIA_TYPE)


def _headers(sha256: str | None) -> dict[str, str]:
    return {"ETag": f'"{sha256}"', "Accept-Ranges": "bytes"}


def _matches(if_none_match: str | None, etag: str) -> bool:
    """Weak comparison, as If-None-Match asks for (RFC 9110 §13.1.2)."""
    given = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    return etag in given or given == ["*"]
