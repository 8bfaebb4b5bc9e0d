"""Notifications by topic within one process.

A waiter receives notifications from `listen` on, so one between reading the store and waiting is not lost:

    with signals.listen(call_changed_topic(call_id)) as waiter:
        while not (await read_call()).is_final:    # a notification from here on …
            await waiter.wait(5)                   # … ends this wait at once
"""

from collections.abc import Generator, Iterable
from contextlib import contextmanager

from ringback.waits import LocalWaiter


class LocalSignals:
    """Waiters by topic. A notification costs time only for the waiters of its topic."""

    def __init__(self) -> None:
        self._waiters_by_topic: dict[str, set[LocalWaiter]] = {}

    @contextmanager
    def listen(self, *topics: str) -> Generator[LocalWaiter]:
        waiter = LocalWaiter()
        for topic in topics:
            self._waiters_by_topic.setdefault(topic, set()).add(waiter)
        try:
            yield waiter
        finally:
            for topic in set(topics):
                self._unsubscribe(topic, waiter)

    def notify(self, topics: Iterable[str]) -> None:
        for topic in topics:
            for waiter in self._waiters_by_topic.get(topic, ()):
                waiter.notify()

    def notify_all(self) -> None:
        """Notify every waiter: notifications from elsewhere may have been lost."""
        for waiters in self._waiters_by_topic.values():
            for waiter in waiters:
                waiter.notify()

    def _unsubscribe(self, topic: str, waiter: LocalWaiter) -> None:
        self._waiters_by_topic[topic].discard(waiter)
        if not self._waiters_by_topic[topic]:
            del self._waiters_by_topic[topic]
