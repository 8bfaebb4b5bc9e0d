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

    __slots__ = ("notify",)

    def __init__(self, notify: Callable[[], None]) -> None:
        self.notify = notify


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
    def subscribe(self, callback: Callable[[], None], *topics: str) -> Generator[None]:
        subscriber = _Callback(callback)
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
        """Notify every waiter: notifications from elsewhere may have been lost."""
        for topic in tuple(self._waiters_by_topic):
            self.notify([topic])

    def _add(self, waiter: LocalWaiter | _Callback, topics: Collection[str]) -> None:
        for topic in topics:
            self._waiters_by_topic.setdefault(topic, set()).add(waiter)

    def _remove(self, waiter: LocalWaiter | _Callback, topics: Collection[str]) -> None:
        for topic in set(topics):
            self._waiters_by_topic[topic].discard(waiter)
            if not self._waiters_by_topic[topic]:
                del self._waiters_by_topic[topic]
