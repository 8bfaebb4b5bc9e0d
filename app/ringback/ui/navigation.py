"""The sections of the dashboard, as the links at the head of each page."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from ringback.ui.formats import session_path
from ringback.ui.viewer import Viewer


class Section(NamedTuple):
    label: str
    """Also the title of the section's list. The handler of another page names its section: section="Calls"."""
    path: str
    """Below the dashboard's path; empty for the first page."""


_SECTIONS: Final = (
    Section("Overview", ""),
    Section("Calls", "/calls"),
    Section("Sessions", "/sessions"),
    Section("Webhooks", "/webhooks"),
    Section("Deliveries", "/deliveries"),
    Section("Upstreams", "/upstreams"),
    Section("Events", "/events"),
)
_AUDIT: Final = Section("Audit", "/audit")


def list_sections(viewer: Viewer | None) -> Sequence[Section]:
    """The sections that this viewer may open. A portal link does not show who changed what."""
    if viewer is None:
        return ()
    if viewer.client_session_id is not None:
        return (Section("Session", session_path(viewer.client_session_id)), Section("Calls", "/calls"))
    return _SECTIONS if viewer.is_portal else (*_SECTIONS, _AUDIT)
