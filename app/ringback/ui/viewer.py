"""A viewer: the caller of a page, and what it may do there."""

from dataclasses import dataclass, field

from ringback.domain.errors import NotFound
from ringback.domain.ids import PortalLinkId
from ringback.domain.principal import Caller, Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    caller: Caller
    """With the viewer's own principal. `access` makes the caller of a list or of one object from it."""
    form_token: str = field(repr=False)
    """Every form of the dashboard repeats it (protection against CSRF). Empty for a viewer that may change nothing."""
    is_signed_in: bool = False
    """Whether this browser has a sign-in, which it can end. It has none for a portal link, and while authentication is off."""
    client_session_id: str | None = None
    """The only client session that a portal link shows; None for a viewer without this restriction."""
    portal_link_id: PortalLinkId | None = None
    """The portal link that opened the pages; None for a viewer that signed in."""

    @property
    def is_portal(self) -> bool:
        """Whether a portal link opened the pages. Such a viewer only reads."""
        return self.portal_link_id is not None

    @property
    def pages_path(self) -> str:
        """Below the dashboard's path: what the paths of this viewer's pages begin with. Empty but for a portal link."""
        return "" if self.portal_link_id is None else f"/portal/{self.portal_link_id}"

    @property
    def is_operator(self) -> bool:
        """Whether the viewer sees the rows of all principals."""
        return Scope.ADMIN in self.caller.scopes

    def may(self, scope: Scope) -> bool:
        """Whether pages show the buttons that need this scope. The services check it again."""
        return not self.is_portal and (scope in self.caller.scopes or self.is_operator)

    @property
    def may_start_calls(self) -> bool:
        return self.may(Scope.CALLS)

    @property
    def may_change_webhooks(self) -> bool:
        return self.may(Scope.WEBHOOKS)

    def require_client_session(self, client_session_id: str | None) -> None:
        """Raise `NotFound` if a portal link shows another client session only."""
        if self.client_session_id is not None and self.client_session_id != client_session_id:
            raise NotFound("This link shows one client session, and what you asked for is not part of it.")
