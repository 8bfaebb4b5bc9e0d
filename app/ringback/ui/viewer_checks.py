"""Checks again that the viewers of open streams may see their pages: a sign-in, a portal link or the key behind it may end."""

import asyncio
from typing import Final
from weakref import WeakValueDictionary

from starlette.requests import Request

from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ids import PortalLinkId
from ringback.ui.viewer import Viewer
from ringback.ui.viewers import Viewers

CHECK_SECONDS: Final = 1.0
"""How long the streams of one viewer share an answer of the store: at most for so long they show more after its end."""


class ViewerChecks:
    """The checks of all open streams."""

    def __init__(self, viewers: Viewers, clock: Clock) -> None:
        self._viewers = viewers
        self._clock = clock
        self._checks: WeakValueDictionary[tuple[PortalLinkId | None, str], ViewerCheck] = WeakValueDictionary()

    def open_check(self, request: Request, viewer: Viewer) -> "ViewerCheck":
        """The check of this viewer, which `request` has just shown. Streams of one sign-in, or of one link, share it."""
        key = (viewer.portal_link_id, viewer.form_token)
        check = self._checks.get(key)
        if check is None or check.viewer != viewer or check.has_ended:
            check = self._checks[key] = ViewerCheck(self._viewers, self._clock, request, viewer)
        return check


class ViewerCheck:
    """Whether one viewer may still see its pages."""

    def __init__(self, viewers: Viewers, clock: Clock, request: Request, viewer: Viewer) -> None:
        self.viewer = viewer
        self._viewers = viewers
        self._clock = clock
        self._request = request
        self._lock = asyncio.Lock()
        self._checked_at = clock.monotonic()
        self.has_ended = False

    async def is_admitted(self, *, shows_rows: bool) -> bool:
        """False once the viewer, or one of its rights, has ended; and for rows, while the store does not answer."""
        async with self._lock:
            now = self._clock.monotonic()
            if self.has_ended or now < self._checked_at + CHECK_SECONDS:
                return not self.has_ended
            try:
                self.has_ended = await self._viewers.find_viewer(self._request) != self.viewer
            except StoreUnavailable:
                return not shows_rows
            self._checked_at = now
            return not self.has_ended
