"""Hints between the nodes that share a store, about what only one node has in memory.

A hint can be lost, so it only speeds up or completes what the store decides. A store of one process needs none.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from ringback.domain.ports import Store, Transaction


class NodeSignals:
    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def has_other_nodes(self) -> bool:
        """Whether other nodes may share the store."""
        return not self._store.is_exclusive

    async def notify_nodes(self, topic: str) -> None:
        """Notify the subscribers of the topic on all nodes, this one included. Raises `StoreUnavailable`."""

        async def notify(tx: Transaction) -> None:
            tx.notify(topic)

        await self._store.write(notify)

    def subscribe(
        self, callback: Callable[[], None], topic: str, *, also_after_losses: bool = True
    ) -> AbstractContextManager[None]:
        """As `Signals.subscribe`, for hints of other nodes."""
        if not self.has_other_nodes:
            return nullcontext()
        return self._store.signals.subscribe(callback, topic, also_after_losses=also_after_losses)
