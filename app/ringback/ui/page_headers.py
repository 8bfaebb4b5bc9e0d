"""The headers of every page: nothing inline, nothing from other hosts, no frame but those of portal links."""

from collections.abc import Collection
from typing import Final

from ringback.ui.viewer import Viewer

_POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors {}"
)
CONTENT_SECURITY_POLICY: Final = _POLICY.format("'none'")
PAGE_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class PageHeaders:
    """The headers for a viewer. Pages of a portal link may be in frames of the origins that the operator allows."""

    def __init__(self, portal_origins: Collection[str]) -> None:
        """`portal_origins`: such as https://app.example.com (RINGBACK_PORTAL_ORIGINS)."""
        self._portal = PAGE_HEADERS
        if portal_origins:
            policy = _POLICY.format(" ".join(portal_origins))
            # X-Frame-Options cannot name origins, and browsers that know frame-ancestors ignore it.
            self._portal = {
                **{name: value for name, value in PAGE_HEADERS.items() if name != "X-Frame-Options"},
                "Content-Security-Policy": policy,
            }

    @property
    def portal(self) -> dict[str, str]:
        return self._portal

    def for_viewer(self, viewer: Viewer | None) -> dict[str, str]:
        return self._portal if viewer is not None and viewer.is_portal else PAGE_HEADERS
