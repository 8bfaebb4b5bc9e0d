"""How long a test waits for what must happen: the bound of every wait. It ends a hang, and never judges a speed."""

from typing import Final

WAIT_SECONDS: Final = 120.0
"""Far longer than anything here takes beside four busy processes on two cores; only a broken test waits that long."""
