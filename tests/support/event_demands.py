"""Removes ended demands, as the recorder of upstreams' events does."""

from datetime import datetime

from ringback.domain.ports import Store, Transaction


async def remove_ended_demands(store: Store, *, now: datetime | None = None) -> int:
    """All that have ended by then; their number."""

    async def remove(tx: Transaction) -> int:
        ended = await tx.event_demands.list_ended(now=now or tx.now(), after=None, limit=1_000)
        await tx.event_demands.remove_ended(ended, now=now or tx.now())
        return len(ended)

    return await store.write(remove)
