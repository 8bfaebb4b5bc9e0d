"""The paths that other parts of the service know."""

from typing import Final

PORTAL_PATH: Final = "/ui/portal"
"""Below the public URL: opens a portal link."""
