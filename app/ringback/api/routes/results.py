"""Results over REST: the whole result, a range of it, or a check for changes."""

import re
from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter, Header, Request, Response

from ringback.api.authentication import AuthenticatedRoute, CallerDep
from ringback.api.context import ServicesDep
from ringback.api.http_errors import RangeNotSatisfiable
from ringback.api.problems import AUTHENTICATED_ERRORS, problem_responses
from ringback.api.responses import JSON_MEDIA_TYPE
from ringback.api.routes.calls import CallIdPath
from ringback.domain import errors
from ringback.domain.call import Call
from ringback.domain.call_resumes import ResumeSurface
from ringback.schemas import examples
from ringback.services.limits.unread_responses import ResponseMemory, find_response_memory

# The Range header of RFC 9110 §14, for one range of bytes.

_RANGE_PATTERN: Final = re.compile(r"bytes=[ \t]*(?P<first>[0-9]{0,18})-(?P<last>[0-9]{0,18})[ \t]*", re.IGNORECASE)
"""Other units, several ranges and malformed headers are ignored, and the whole result is sent: §14.2 allows it."""


PART_COPIED_MAX: Final = 1024 * 1024
"""Bytes of a range that is copied out of its result, in a tenth of a millisecond."""


def parse_range(header: str | None, *, size: int) -> range | None:
    """Return the requested range; None for the whole result. Raises `RangeNotSatisfiable` for an empty range."""
    match = _RANGE_PATTERN.fullmatch(header or "")
    if match is None or not (match["first"] or match["last"]):
        return None
    if not match["first"]:
        selected = range(max(0, size - int(match["last"])), size)
    elif match["last"] and int(match["last"]) < int(match["first"]):
        return None  # §14.1.1: such a range is malformed
    else:
        selected = range(int(match["first"]), min(int(match["last"] or size), size - 1) + 1)
    if not selected:
        raise RangeNotSatisfiable(f"The result has {size} bytes, and none of them is in this range.", bytes=size)
    return selected


def if_range_matches(if_range: str | None, etag: str) -> bool:
    """Whether a range may be sent: If-Range is absent or names this result by its strong ETag (§13.1.5)."""
    return if_range is None or if_range.strip() == etag


router = APIRouter(prefix="/v1/calls", tags=["calls"], route_class=AuthenticatedRoute)

IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match", description="An ETag you already have.")]
Range = Annotated[
    str | None, Header(alias="Range", description="One range of bytes. Several ranges get the whole result.")
]
IfRange = Annotated[
    str | None,
    Header(
        alias="If-Range",
        description="The ETag of the part that you have. If the result has changed, the response is the whole result.",
    ),
]

_ETAG = {
    "ETag": {"description": "The result's SHA-256.", "schema": {"type": "string"}},
    "Accept-Ranges": {"description": "`bytes`.", "schema": {"type": "string"}},
}
_PART_HEADERS = {
    **_ETAG,
    "Content-Range": {"description": "The range, and the size of the result.", "schema": {"type": "string"}},
}
_RESULT = {JSON_MEDIA_TYPE: {"schema": {"type": "object"}, "example": examples.RESULT}}
_PART = {JSON_MEDIA_TYPE: {"schema": {"type": "string"}, "example": '{"content":[{"type":'}}
_UNCHANGED = {304: {"description": "The result has not changed.", "headers": _ETAG}}


@router.get(
    "/{call_id}/result",
    response_class=Response,
    responses={
        200: {
            "description": "The stored CallToolResult, with the same bytes as in every other response.",
            "headers": _ETAG,
            "content": _RESULT,
        },
        206: {
            "description": "The requested range.",
            "headers": _PART_HEADERS,
            "content": _PART,
        },
        **_UNCHANGED,
        **problem_responses(
            *AUTHENTICATED_ERRORS,
            errors.NotFound,
            errors.CallExpired,
            errors.ResultNotReady,
            errors.QuotaExceeded,
            RangeNotSatisfiable,
        ),
    },
)
async def read_result(
    call_id: CallIdPath,
    request: Request,
    services: ServicesDep,
    caller: CallerDep,
    if_none_match: IfNoneMatch = None,
    range_: Range = None,
    if_range: IfRange = None,
) -> Response:
    """Read the result. For a call without a result, the response is 409 with the reason."""
    memory: ResponseMemory | None = find_response_memory(request.scope["state"])
    select = partial(_select_part, range_, if_range)
    if if_none_match is not None or range_ is not None:
        known = await services.calls.get_call(caller, call_id)
        if known.result_bytes is not None and _etag_matches(if_none_match, _etag(known)):
            services.call_resumes.record_read(known, ResumeSurface.REST_RESULT)
            return Response(status_code=304, headers=_result_headers(known))
        if known.result_bytes is not None and _is_copied(select(known, known.result_bytes)):
            memory = None  # the result is in memory during its read only, and the response reserves its part
    call, result = await services.calls.get_result(caller, call_id, memory=memory)
    services.call_resumes.record_read(call, ResumeSurface.REST_RESULT)
    headers, part = _result_headers(call), select(call, len(result))
    if part is None:
        return Response(result, headers=headers, media_type=JSON_MEDIA_TYPE)
    headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{len(result)}"
    return Response(_cut(result, part), status_code=206, headers=headers, media_type=JSON_MEDIA_TYPE)


@router.head(
    "/{call_id}/result",
    name="look_at_result",
    response_class=Response,
    responses={
        200: {"description": "The call has a result. Content-Length is its size.", "headers": _ETAG, "content": {}},
        **_UNCHANGED,
        **problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound, errors.CallExpired, errors.ResultNotReady),
    },
)
async def head_result(
    call_id: CallIdPath, services: ServicesDep, caller: CallerDep, if_none_match: IfNoneMatch = None
) -> Response:
    """Read the size and the ETag of a result, without the result."""
    call = await services.calls.get_call(caller, call_id)
    size = call.result_bytes
    if size is None:  # the reason is in the error that this raises
        size = len((await services.calls.get_result(caller, call_id))[1])
    headers = _result_headers(call)
    if _etag_matches(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(headers={**headers, "Content-Length": str(size)}, media_type=JSON_MEDIA_TYPE)


def _etag(call: Call) -> str:
    return f'"{call.result_sha256}"'


def _result_headers(call: Call) -> dict[str, str]:
    # A cache of the client itself may keep the result, and checks with the ETag whether it still may show it.
    return {"ETag": _etag(call), "Accept-Ranges": "bytes", "Cache-Control": "private, no-cache"}


def _select_part(range_: str | None, if_range: str | None, call: Call, size: int) -> range | None:
    """The part of a result of `size` bytes that a request gets; None for the whole. Raises `RangeNotSatisfiable`."""
    return parse_range(range_, size=size) if if_range_matches(if_range, _etag(call)) else None


def _is_copied(part: range | None) -> bool:
    return part is not None and len(part) <= PART_COPIED_MAX


def _cut(result: bytes, part: range) -> "bytes | memoryview[int]":
    """The bytes of a range. A large one is not copied: it holds the whole result, which other ranges share."""
    whole = result if _is_copied(part) else memoryview(result)
    return whole[part.start : part.stop]


def _etag_matches(if_none_match: str | None, etag: str) -> bool:
    """Weak comparison, as If-None-Match requires (RFC 9110 §13.1.2)."""
    tags = [tag.strip().removeprefix("W/") for tag in (if_none_match or "").split(",")]
    return etag in tags or tags == ["*"]
