"""Bodies of hostile peers that never end and arrive a little at a time."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

PAUSE_SECONDS: Final = 0.01
"""Shorter than any limit on the pause between two reads, so that only a limit on the whole body ends the read."""


async def send_slowly(part: bytes) -> AsyncGenerator[bytes]:
    """Send `part` again and again, with a pause after each."""
    while True:
        yield part
        await asyncio.sleep(PAUSE_SECONDS)
