"""Notifications by topic within one process.

A waiter receives notifications from `listen` on, so one between reading the store and waiting is not lost:

    with signals.listen(call_changed_topic(call_id)) as waiter:
        while not (await read_call()).is_final:    # a notification from here on …
            await waiter.wait(5)                   # … ends this wait at once
"""

from collections.abc import Callable, Collection, Generator, Iterable
from contextlib import contextmanager

from ringback.waits import LocalWaiter


class _Callback:
    """A subscriber that waits in no task."""

    __slots__ = ("also_after_losses", "notify")

    def __init__(self, notify: Callable[[], None], *, also_after_losses: bool) -> None:
        self.notify = notify
        self.also_after_losses = also_after_losses


class LocalSignals:
    """Waiters by topic. A notification costs time only for the waiters of its topic."""

    def __init__(self) -> None:
        self._waiters_by_topic: dict[str, set[LocalWaiter | _Callback]] = {}

    @contextmanager
    def listen(self, *topics: str) -> Generator[LocalWaiter]:
        waiter = LocalWaiter()
        self._add(waiter, topics)
        try:
            yield waiter
        finally:
            self._remove(waiter, topics)

    @contextmanager
    def subscribe(self, callback: Callable[[], None], *topics: str, also_after_losses: bool = True) -> Generator[None]:
        subscriber = _Callback(callback, also_after_losses=also_after_losses)
        self._add(subscriber, topics)
        try:
            yield
        finally:
            self._remove(subscriber, topics)

    def notify(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for waiter in tuple(self._waiters_by_topic.get(topic, ())):  # a callback may end its subscription
                waiter.notify()

    def notify_all(self) -> None:
        """Notify every waiter that reads the store: notifications from elsewhere may have been lost."""
        for waiters in tuple(self._waiters_by_topic.values()):
            for waiter in tuple(waiters):
                if not isinstance(waiter, _Callback) or waiter.also_after_losses:
                    waiter.notify()

    def _add(self, waiter: LocalWaiter | _Callback, topics: Collection[str]) -> None:
        for topic in topics:
            self._waiters_by_topic.setdefault(topic, set()).add(waiter)

    def _remove(self, waiter: LocalWaiter | _Callback, topics: Collection[str]) -> None:
        for topic in set(topics):
            self._waiters_by_topic[topic].discard(waiter)
            if not self._waiters_by_topic[topic]:
                del self._waiters_by_topic[topic]
