"""Closes connections of principals without use, and deletes stored lists that are not used any more, in the background."""

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any, Final

from ringback.asyncio_tasks import end_tasks
from ringback.domain.clock import Clock
from ringback.log_context import leave_log_context
from ringback.upstreams.catalog.catalog_cache import CatalogCaches
from ringback.upstreams.connection_directory import ConnectionDirectory

SWEEP_SECONDS: Final = 30.0
"""Between two searches for connections of principals without use."""
CLEANUP_SECONDS: Final = 3600.0
"""Between two removals of stored lists that no principal has used for a long time."""


class OwnedUpkeep:
    def __init__(self, connections: ConnectionDirectory, catalog_caches: CatalogCaches, *, clock: Clock) -> None:
        self._connections = connections
        self._catalog_caches = catalog_caches
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_owned = asyncio.Event()
        """Set while an upstream has credentials for each principal. Without one, there is nothing to look for."""

    def start(self) -> None:
        self.follow_configuration()
        self._start_task(self._catalog_caches.remove_owned_parts(frozenset(self._connections.list_names())))
        self._start_task(self._close_idle_connections())
        self._start_task(self._remove_old_parts())

    def follow_configuration(self) -> None:
        if self._connections.owned:
            self._has_owned.set()
        else:
            self._has_owned.clear()

    def delete_lists_of_others(self, upstreams: Collection[str]) -> None:
        """Delete the stored lists of all other upstreams. The next start repeats what is not done."""
        self._start_task(self._catalog_caches.remove_other_upstreams(upstreams))

    async def aclose(self) -> None:
        await end_tasks(list(self._tasks))

    async def _close_idle_connections(self) -> None:
        leave_log_context()
        while await self._has_owned.wait():
            await self._clock.sleep(SWEEP_SECONDS)
            for owned in list(self._connections.owned.values()):
                owned.close_idle_connections()

    async def _remove_old_parts(self) -> None:
        leave_log_context()
        while await self._has_owned.wait():
            await self._clock.sleep(CLEANUP_SECONDS)
            await self._catalog_caches.remove_old_parts()

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
