"""Watches whether several principals can start calls, for the limit of one principal (`permits`).

    authentication is off      one principal                                      no statement
    API keys only              the owners of valid keys that can start calls      one statement every few seconds
    an identity provider, too  several: it may give anybody an access token       no statement

A key that is revoked or has expired does not count, and neither does one that only reads, registers webhooks or scrapes
metrics: its owner starts no call. What the owner started before, with another key or for a later time, waits its turn without
a place that is kept for it. If no key counts, the calls come from elsewhere, and several principals are assumed.

The store is read at the start, after each change of a key, and every few seconds besides: a key expires without a notification,
and the command line creates keys in a process of its own. Until the first answer, the runner assumes several principals; while
the store is unavailable, the last answer holds. No lease waits for any of this.
"""

from typing import Protocol

from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store
from ringback.domain.signals import API_KEYS_TOPIC


class NotePrincipals(Protocol):
    def __call__(self, *, are_several: bool) -> None: ...


class KeyOwnerWatch:
    def __init__(self, *, store: Store, on_look: NotePrincipals, poll_seconds: float) -> None:
        """`on_look` learns each answer of the store."""
        self._store = store
        self._on_look = on_look
        self._poll_seconds = poll_seconds

    async def run(self) -> None:
        """Look until the task is cancelled."""
        with self._store.signals.listen(API_KEYS_TOPIC) as waiter:
            while True:
                await self._look()
                await waiter.wait(self._poll_seconds)

    async def _look(self) -> None:
        try:
            is_single = await self._store.scan(None, lambda tx: tx.key_owners.is_single(now=tx.now()))
        except StoreUnavailable:
            return
        self._on_look(are_several=not is_single)
