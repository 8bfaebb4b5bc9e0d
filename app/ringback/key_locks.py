"""One lock for each key: work with the same key runs one after the other."""

import asyncio
from weakref import WeakValueDictionary


class KeyLocks:
    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def hold(self, key: str) -> asyncio.Lock:
        """The lock of the key, for `async with`. It is kept while a task holds or awaits it, so old keys take no room."""
        return self._locks.setdefault(key, asyncio.Lock())
