"""Scans of the store on behalf of one principal, for readers that do not choose it themselves."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal

T = TypeVar("T")


class Scan(Protocol):
    async def __call__(self, work: Callable[[Transaction], Awaitable[T]], /) -> T:
        """As `Store.scan`."""
        ...


def scan_for(store: Store, principal: Principal | None) -> Scan:
    async def scan(work: Callable[[Transaction], Awaitable[T]], /) -> T:
        return await store.scan(principal, work)

    return scan
