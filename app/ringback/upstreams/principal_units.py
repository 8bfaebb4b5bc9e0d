"""Writes for many principals: a unit of work for each, so that the locked rows of one delay no other."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final

from ringback.domain.errors import RowsLocked
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal

UNITS_AT_ONCE: Final = 4
"""Units that are written at once: more would delay the other writes of the store."""


async def write_for_each(
    store: Store, principals: Iterable[Principal], write: Callable[[Transaction, Principal], Awaitable[None]]
) -> Mapping[Principal, RowsLocked]:
    """Write for each principal, and return those whose rows stayed locked. Raises other errors of the store afterwards."""
    remaining, locked = iter(principals), dict[Principal, RowsLocked]()

    async def write_remaining() -> None:
        for principal in remaining:
            try:
                await store.write_for(principal, lambda tx, each=principal: write(tx, each))
            except RowsLocked as problem:
                locked[principal] = problem

    workers = [write_remaining() for _ in range(UNITS_AT_ONCE)]
    for problem in filter(None, await asyncio.gather(*workers, return_exceptions=True)):
        raise problem
    return locked
