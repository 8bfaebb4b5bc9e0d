"""The limit of every wait in tests. It ends a hang, and does not measure speed."""

from typing import Final

WAIT_SECONDS: Final = 120.0
"""Far longer than any step takes beside four busy processes on two cores; only a broken test waits that long."""
