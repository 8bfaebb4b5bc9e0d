"""What `ringback listen` does without options. Its help shows them, so this module imports no part of the listener."""

from typing import Final

PARALLEL_DEFAULT: Final = 4
"""Handlers at once: half of a laptop's cores, because a handler may be an agent."""
ATTEMPTS_MAX_DEFAULT: Final = 64
"""About an hour of pauses, as long as the service tries an ordered webhook. Attempts are counted, not hours, because a laptop
sleeps."""
