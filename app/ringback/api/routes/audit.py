"""The audit log over REST."""

from typing import Annotated

from fastapi import APIRouter, Query

from ringback.api.authentication import AuthenticatedRoute
from ringback.api.context import ServicesDep
from ringback.api.operator_access import ListCallerDep
from ringback.api.problems import AUTHENTICATED_ERRORS, problem_responses
from ringback.domain import errors
from ringback.domain.cursor import CursorList, decode_number_cursor, encode_cursor
from ringback.schemas.audit import AuditPageView, AuditQuery

router = APIRouter(prefix="/v1/audit", tags=["audit"], route_class=AuthenticatedRoute)


@router.get("", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.InvalidRequest, errors.InvalidCursor))
async def list_audit_entries(
    query: Annotated[AuditQuery, Query()], services: ServicesDep, caller: ListCallerDep
) -> AuditPageView:
    """List who changed what you own, newest first: webhooks, redeliveries, cancellations, answers, keys, links, erasures.

    Operators' changes of it are included. An operator reads all entries with `principal=*`, those about the service itself
    too. Entries are kept for `RINGBACK_AUDIT_RETENTION_SECONDS`, at most the last million of one owner.
    """
    position = decode_number_cursor(CursorList.AUDIT, query.cursor)
    page = await services.audit_log.list_entries(caller, position=position, limit=query.limit)
    end = page.next_position
    return AuditPageView.from_entries(page, None if end is None else encode_cursor(CursorList.AUDIT, str(end)))
