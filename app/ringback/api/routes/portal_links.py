"""Portal links over REST: create, list and delete them."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from ringback.api.authentication import AuthenticatedRoute
from ringback.api.context import ServicesDep
from ringback.api.idempotency_keys import refuse_idempotency_key
from ringback.api.operator_access import ListCallerDep, OwnerCallerDep
from ringback.api.problems import AUTHENTICATED_ERRORS, BODY_ERRORS, problem_responses
from ringback.domain import errors
from ringback.domain.cursor import CursorList, decode_id_cursor, encode_next_cursor
from ringback.schemas import examples
from ringback.schemas.portal_links import (
    CreatedPortalLinkView,
    CreatePortalLinkBody,
    PortalLinkListQuery,
    PortalLinkPageView,
)

router = APIRouter(prefix="/v1/portal-links", tags=["portal links"], route_class=AuthenticatedRoute)

_DEFAULT_BODY = CreatePortalLinkBody()


@router.post(
    "",
    status_code=201,
    dependencies=[refuse_idempotency_key()],
    responses=problem_responses(*AUTHENTICATED_ERRORS, *BODY_ERRORS, errors.InvalidRequest, errors.QuotaExceeded),
)
async def create_portal_link(
    services: ServicesDep,
    caller: OwnerCallerDep,
    body: CreatePortalLinkBody = _DEFAULT_BODY,
) -> CreatedPortalLinkView:
    """Create a link that shows your pages of the dashboard, or those of one client session, to people without a key.

    The pages are read-only. A product may embed them, if its origin is in `RINGBACK_PORTAL_ORIGINS`. The link ends at its
    expiry, when it is deleted, and when your key is revoked or expires. A link that was made with an access token does not end
    with the token.
    """
    created = await services.portal_links.create_link(
        caller, client_session_id=body.client_session_id, lifetime_seconds=body.expires_in_seconds
    )
    return CreatedPortalLinkView.from_created(created)


@router.get("", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.InvalidRequest, errors.InvalidCursor))
async def list_portal_links(
    query: Annotated[PortalLinkListQuery, Query()], services: ServicesDep, caller: ListCallerDep
) -> PortalLinkPageView:
    """List your portal links, newest first, without their URLs."""
    position = decode_id_cursor(CursorList.PORTAL_LINKS, query.cursor)
    page = await services.portal_links.list_links(caller, position=position, limit=query.limit)
    return PortalLinkPageView.from_links(page, encode_next_cursor(CursorList.PORTAL_LINKS, page))


@router.delete("/{link_id}", status_code=204, responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound))
async def delete_portal_link(
    link_id: Annotated[str, Path(description="A link's id.", examples=[examples.PORTAL_LINK_ID])],
    services: ServicesDep,
    caller: OwnerCallerDep,
) -> None:
    """Delete a portal link. It shows nothing any more, also in browsers that have opened it."""
    await services.portal_links.delete_link(caller, link_id)
