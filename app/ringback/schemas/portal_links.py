"""Portal links in requests and responses."""

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import Field, Strict

from ringback.domain.portal_links import (
    PORTAL_LINK_SECONDS_DEFAULT,
    PORTAL_LINK_SECONDS_MAX,
    PORTAL_LINK_SECONDS_MIN,
    PortalLink,
)
from ringback.schemas.fields import (
    NEXT_CURSOR_DESCRIPTION,
    PAGE_SIZE_DEFAULT,
    Cursor,
    Instant,
    Label,
    PageSize,
    PrincipalQueryParams,
    RequestBody,
    ResponseBody,
)
from ringback.services.access.portal_links import CreatedPortalLink


class CreatePortalLinkBody(RequestBody):
    """A new portal link."""

    client_session_id: Label | None = Field(
        default=None, description="The only client session that the link shows. Without it, it shows all your pages."
    )
    expires_in_seconds: Annotated[int, Strict(), Field(ge=PORTAL_LINK_SECONDS_MIN, le=PORTAL_LINK_SECONDS_MAX)] = Field(
        default=PORTAL_LINK_SECONDS_DEFAULT, description="When it ends: a day at most."
    )


class PortalLinkListQuery(PrincipalQueryParams):
    limit: PageSize = PAGE_SIZE_DEFAULT
    cursor: Cursor | None = None


class PortalLinkView(ResponseBody):
    """A link to pages of the dashboard that needs no key, without its URL."""

    id: str
    principal: str = Field(description="Whose pages it shows.")
    client_session_id: str | None = Field(description="The only client session that it shows; null for all pages.")
    created_by: str
    key_id: str | None = Field(description="The key that made it. The link ends with the key.")
    created_at: Instant
    expires_at: Instant

    @classmethod
    def from_link(cls, link: PortalLink) -> Self:
        return cls.model_validate(link)


class CreatedPortalLinkView(PortalLinkView):
    """A new portal link. Only this response has its URL."""

    url: str = Field(description="A browser that opens it shows the pages, until the link ends. It is shown only once.")

    @classmethod
    def from_created(cls, created: CreatedPortalLink) -> Self:
        return cls(**dict(PortalLinkView.from_link(created.link)), url=created.url)


class PortalLinkPageView(ResponseBody):
    portal_links: list[PortalLinkView]
    next_cursor: str | None = Field(description=NEXT_CURSOR_DESCRIPTION)

    @classmethod
    def from_links(cls, links: Sequence[PortalLink], next_cursor: str | None) -> Self:
        return cls(portal_links=[PortalLinkView.from_link(link) for link in links], next_cursor=next_cursor)
