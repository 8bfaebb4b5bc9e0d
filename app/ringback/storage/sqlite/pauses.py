"""Pauses of a unit of work, at which whoever drives it may let others have their turn (`transaction.drive_in_turns`)."""

from collections.abc import Generator
from typing import Final

PAUSED: Final = object()
"""What a unit of work yields at a pause. It yields nothing else: it waits for nothing."""


class Pause:
    def __await__(self) -> Generator[object, None, None]:
        yield PAUSED
