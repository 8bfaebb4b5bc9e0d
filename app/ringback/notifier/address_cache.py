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
        self._cached: OrderedDict[str, tuple[Resolution, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._cached)

    def get(self, host: str) -> Resolution | None:
        """The resolution of a name as long as its seconds last."""
        cached = self._cached.get(host)
        if cached is None:
            return None
        resolution, until = cached
        if self._monotonic() >= until:
            del self._cached[host]
            return None
        self._cached.move_to_end(host)
        return resolution

    def put(self, host: str, resolution: Resolution) -> None:
        self._cached.pop(host, None)
        if resolution.ttl_seconds <= 0:
            return
        self._cached[host] = (resolution, self._monotonic() + resolution.ttl_seconds)
        if len(self._cached) > self._names_max:
            self._cached.popitem(last=False)
