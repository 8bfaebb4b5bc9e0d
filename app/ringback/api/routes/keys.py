"""API keys over REST: create, list, read, rotate and revoke them. Every operation needs the scope `admin`."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from ringback.api.authentication import AuthenticatedRoute, CallerDep
from ringback.api.context import ServicesDep
from ringback.api.idempotency_keys import refuse_idempotency_key
from ringback.api.operator_access import AdminCallerDep
from ringback.api.problems import AUTHENTICATED_ERRORS, BODY_ERRORS, problem_responses
from ringback.domain import errors
from ringback.domain.cursor import CursorList, decode_id_cursor, encode_next_cursor
from ringback.schemas import examples
from ringback.schemas.keys import (
    CreatedKeyView,
    CreateKeyBody,
    KeyListQuery,
    KeyPageView,
    KeyView,
    RotatedKeyView,
    RotateKeyBody,
)

router = APIRouter(prefix="/v1/keys", tags=["keys"], route_class=AuthenticatedRoute)

KeyIdPath = Annotated[str, Path(description="A key's id.", examples=[examples.KEY_ID])]
_DEFAULT_ROTATE_BODY = RotateKeyBody()


@router.post(
    "",
    status_code=201,
    dependencies=[
        refuse_idempotency_key("List the keys before you repeat the request, and revoke the one that you do not have.")
    ],
    responses=problem_responses(*AUTHENTICATED_ERRORS, *BODY_ERRORS),
)
async def create_key(
    body: CreateKeyBody, services: ServicesDep, caller: CallerDep, response: Response
) -> CreatedKeyView:
    """Create an API key. The response shows the key itself, once. Needs the scope `admin`.

    If your key may use only some upstreams, so may the new one.
    """
    services.operators.require_admin(caller, operation="create_key", principal=body.principal)
    key, text = await services.api_keys.create_key(body.principal, **body.to_new_key(), caller=caller)
    response.headers["Location"] = f"/v1/keys/{key.id}"
    known_upstreams = services.insights.list_upstream_names(caller)
    return CreatedKeyView.from_created(key, text, known_upstreams=known_upstreams)


@router.get("", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.InvalidRequest, errors.InvalidCursor))
async def list_keys(
    query: Annotated[KeyListQuery, Query()], services: ServicesDep, caller: AdminCallerDep
) -> KeyPageView:
    """List the API keys of all principals, or of one, newest first, with the expired and the revoked ones. Needs `admin`."""
    position = decode_id_cursor(CursorList.KEYS, query.cursor)
    page = await services.api_keys.list_page(caller, query.principal, position=position, limit=query.limit)
    return KeyPageView.from_keys(page, encode_next_cursor(CursorList.KEYS, page))


@router.get("/{key_id}", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound))
async def read_key(key_id: KeyIdPath, services: ServicesDep, caller: AdminCallerDep) -> KeyView:
    """Read an API key without the key itself. Needs the scope `admin`."""
    return KeyView.from_key(await services.api_keys.get_key(caller, key_id))


@router.post(
    "/{key_id}/rotate",
    status_code=201,
    dependencies=[refuse_idempotency_key()],
    responses=problem_responses(*AUTHENTICATED_ERRORS, *BODY_ERRORS, errors.NotFound, errors.Conflict),
)
async def rotate_key(
    key_id: KeyIdPath,
    services: ServicesDep,
    caller: AdminCallerDep,
    response: Response,
    body: RotateKeyBody = _DEFAULT_ROTATE_BODY,
) -> RotatedKeyView:
    """Create a key with the same rights. The old one expires after the overlap. Needs the scope `admin`."""
    rotated = await services.api_keys.rotate_key(
        key_id, overlap_seconds=body.overlap_seconds, lifetime_seconds=body.expires_in_seconds, caller=caller
    )
    response.headers["Location"] = f"/v1/keys/{rotated.key.id}"
    return RotatedKeyView.from_rotated(rotated)


@router.delete("/{key_id}", status_code=204, responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound))
async def revoke_key(key_id: KeyIdPath, services: ServicesDep, caller: AdminCallerDep) -> None:
    """Revoke an API key: its next request gets 401, on every node. Needs the scope `admin`."""
    await services.api_keys.revoke_key(key_id, caller=caller)
