"""Resolutions that may be served again: each for its seconds, and a bounded number of them.

Addresses are kept here and never a verdict on them: the guard judges them again for each connection.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from ringback.notifier.resolver import Resolution

NAMES_MAX: Final = 4096
"""Names. At most some 75 addresses each (`ARES_FLAG_IGNTC`), mostly one or two: 20 MB at the worst."""


class AddressCache:
    """The name that was used longest ago makes room."""

    def __init__(self, *, monotonic: Callable[[], float], names_max: int = NAMES_MAX) -> None:
        self._monotonic = monotonic
        self._names_max = names_max
        self._kept: OrderedDict[str, tuple[Resolution, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, host: str) -> Resolution | None:
        """The resolution of a name as long as its seconds last."""
        kept = self._kept.get(host)
        if kept is None:
            return None
        resolution, until = kept
        if self._monotonic() >= until:
            del self._kept[host]
            return None
        self._kept.move_to_end(host)
        return resolution

    def put(self, host: str, resolution: Resolution) -> None:
        self._kept.pop(host, None)
        if resolution.seconds <= 0:
            return
        self._kept[host] = (resolution, self._monotonic() + resolution.seconds)
        if len(self._kept) > self._names_max:
            self._kept.popitem(last=False)
