"""Entries of the audit log in responses."""

from collections.abc import Sequence
from typing import Self

from pydantic import Field

from ringback.domain.audit import AuditEntry
from ringback.domain.principal import Surface
from ringback.schemas.fields import (
    NEXT_CURSOR_DESCRIPTION,
    PAGE_SIZE_DEFAULT,
    Cursor,
    Instant,
    PageSize,
    PrincipalQueryParams,
    ResponseBody,
)


class AuditQuery(PrincipalQueryParams):
    limit: PageSize = PAGE_SIZE_DEFAULT
    cursor: Cursor | None = None


class AuditEntryView(ResponseBody):
    """A change: who changed what, and when."""

    seq: int = Field(description="The number of the entry. Later changes have higher ones.")
    at: Instant
    principal: str | None = Field(description="Who changed it; null for an operator with access to the database.")
    key_id: str | None = Field(description="The key of the request; null if it had an access token.")
    surface: Surface = Field(
        description="Where the request arrived. `cli` is the database itself, at the command line."
    )
    operation: str = Field(description="The id of the operation in this document, also if another surface ran it.")
    target: str | None = Field(description="The id or the name of what was changed.")
    owner: str | None = Field(description="Who owns it; null if the service does.")
    detail: str | None = Field(description="What changed, in the service's own words.")

    @classmethod
    def from_entry(cls, entry: AuditEntry) -> Self:
        return cls.model_validate(entry)


class AuditPageView(ResponseBody):
    entries: list[AuditEntryView]
    next_cursor: str | None = Field(description=NEXT_CURSOR_DESCRIPTION)

    @classmethod
    def from_entries(cls, entries: Sequence[AuditEntry], next_cursor: str | None) -> Self:
        return cls(entries=[AuditEntryView.from_entry(entry) for entry in entries], next_cursor=next_cursor)
