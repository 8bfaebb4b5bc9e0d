"""Responses about API keys, portal links, the audit log, erasures and quotas, as frozen values."""

from datetime import datetime

from pydantic import Field

from ringback.client.models import ClientModel, ListPage


class ApiKey(ClientModel):
    """An API key of a principal, without the key itself."""

    id: str
    principal: str
    name: str = ""
    prefix: str
    """The first characters of the key."""
    scopes: tuple[str, ...]
    upstreams: tuple[str, ...] | None = None
    """The upstreams that it may use; None means all."""
    created_at: datetime
    expires_at: datetime | None = None
    """From then on it gets 401."""
    replaced_by: str | None = None
    """The id of the key that a rotation created."""
    revoked_at: datetime | None = None


class CreatedApiKey(ApiKey):
    """A new API key."""

    key: str = Field(repr=False)
    """The key itself, which no other response shows."""
    warning: str | None = None
    """Which of its upstreams do not exist."""


class RotatedApiKey(CreatedApiKey):
    """A new API key in the place of another one."""

    replaces: str
    """The id of the old key."""
    overlap_ends_at: datetime
    """Until then the old key is accepted too."""


class PortalLink(ClientModel):
    """A link to pages of the dashboard that needs no key, without its URL."""

    id: str
    principal: str
    client_session_id: str | None = None
    """The only client session that it shows; None for all pages."""
    created_by: str
    key_id: str | None = None
    """The key that made it. The link ends with the key."""
    created_at: datetime
    expires_at: datetime


class CreatedPortalLink(PortalLink):
    """A new portal link."""

    url: str = Field(repr=False)
    """It opens the pages, without a key. No other response shows it."""


class AuditEntry(ClientModel):
    """A change: who changed what, and when."""

    seq: int
    """Later changes have higher numbers."""
    at: datetime
    principal: str | None = None
    """Who changed it; None for an operator with access to the database."""
    key_id: str | None = None
    surface: str
    """rest | mcp | ui | cli"""
    operation: str
    """The id of the operation in the OpenAPI document."""
    target: str | None = None
    owner: str | None = None
    """Who owns what was changed; None if the service does."""
    detail: str | None = None


class Erasure(ClientModel):
    """A request to erase data, and how far it is."""

    id: str
    kind: str
    """call | session | principal"""
    target: str
    """The call's id, the client_session_id, or the principal."""
    state: str
    """erasing | waiting (for the end of cancelled calls) | finished"""
    requested_at: datetime
    finished_at: datetime | None = None
    calls: int = 0
    deliveries: int = 0
    events: int = 0
    webhooks: int = 0


class UsedLimit(ClientModel):
    """One quota, and how much of it is used."""

    name: str
    """Names of the key's own limits begin with `key_`."""
    limit: int
    used: int
    scope: str = "service"
    """service (counted over all nodes) | node (each node counts for itself)"""


class Usage(ClientModel):
    limits: tuple[UsedLimit, ...]


class ApiKeyPage(ListPage):
    keys: tuple[ApiKey, ...]


class PortalLinkPage(ListPage):
    portal_links: tuple[PortalLink, ...]


class AuditPage(ListPage):
    entries: tuple[AuditEntry, ...]
