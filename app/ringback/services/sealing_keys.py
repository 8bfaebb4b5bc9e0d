"""Keys that sealed stored data and are missing from the key ring.

    a missing key still seals stored data   ──▶  the service refuses to start, until the key is back or accepted as lost
    a missing key seals no stored data      ──▶  its row is removed: it was dropped after all data was sealed again.
                                                A running node that has it as its newest key adds it (`key_registration`)
    another key has the id of a stored one  ──▶  the service refuses to start, until it has the key of the other nodes

A check value says which key an id means. It is stored when a service with that key starts for the first time.

Without this check, the service would start and silently fail to send callbacks that it cannot read.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

from ringback.domain.encryption import DURABLE_COLUMNS, SealedColumn, SealedCountStep
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.domain.signals import SEALING_KEYS_TOPIC

PAGE_ROWS: Final = 10_000
"""Sealed rows that one statement visits: some 40 ms."""


async def find_missing_keys(store: Store, key_ids: Collection[str]) -> Sequence[str]:
    """Return the ids of keys that sealed stored data, are not in the key ring, and are not accepted as lost."""
    absent = await _find_absent_keys(store, key_ids)
    found = await _find_sealing_keys(store, absent)
    return [key_id for key_id in absent if key_id in found]


async def _find_absent_keys(store: Store, key_ids: Collection[str]) -> Sequence[str]:
    registered = await store.read(lambda tx: tx.sealing_keys.list_all())
    return [key_id for key_id, key in registered.items() if key.lost_at is None and key_id not in key_ids]


async def _find_sealing_keys(store: Store, wanted: Collection[str]) -> set[str]:
    """Those of the keys that sealed stored data. For one that sealed nothing, all sealed rows are visited.

    They are visited in pages: a statement over all rows of a large database would take longer than a statement may.
    """
    found = set[str]()
    for column in DURABLE_COLUMNS:
        after: str | None = ""
        while after is not None and len(found) < len(wanted):
            page = await store.scan(None, partial(_read_page, column=column, after=after))
            found |= page.counts_by_key.keys() & set(wanted)
            after = page.last_id
    return found


async def _read_page(tx: Transaction, *, column: SealedColumn, after: str) -> SealedCountStep:
    return await tx.sealed_values.count_by_key(column, after=after, limit=PAGE_ROWS)


async def find_differing_keys(tx: Transaction, check_values: Mapping[str, bytes]) -> Sequence[str]:
    """Return the ids that mean other keys in the store than in the key ring, whose `check_values` these are."""
    registered = await tx.sealing_keys.list_all()
    stored = {key_id: key.check_value for key_id, key in registered.items() if key.check_value is not None}
    return [key_id for key_id, value in stored.items() if check_values.get(key_id, value) != value]


async def register_current_key(store: Store, check_values: Mapping[str, bytes], *, current: str, source: str) -> None:
    """Store which key seals from now on; `check_values` are those of the key ring.

    Raises `StoreUnavailable` if a key that sealed stored data is missing, or an id of the ring means another key in the store.
    """
    absent = await _find_absent_keys(store, check_values)
    sealing = await _find_sealing_keys(store, absent)
    if missing := [key_id for key_id in absent if key_id in sealing]:
        raise StoreUnavailable(missing_keys_detail(missing, source), needs_operator=True)

    async def register(tx: Transaction) -> None:
        registered = await tx.sealing_keys.list_all()
        for key_id in absent:
            await tx.sealing_keys.remove(key_id)
            tx.notify(SEALING_KEYS_TOPIC)  # a node that seals with it registers it again
        for key_id in sorted({current} | (registered.keys() & check_values.keys())):
            await tx.sealing_keys.add(key_id, check_values[key_id])
        if differing := await find_differing_keys(tx, check_values):  # last: another node may have added one meanwhile
            raise StoreUnavailable(differing_keys_detail(differing, source), needs_operator=True)

    await store.write(register)


async def accept_lost_keys(store: Store, key_ids: Collection[str]) -> Sequence[str]:
    """Accept the loss of the missing keys, so that the service starts without them. Return their ids."""
    missing = await find_missing_keys(store, key_ids)

    async def accept(tx: Transaction) -> None:
        for key_id in missing:
            await tx.sealing_keys.accept_loss(key_id, now=tx.now())

    await store.write(accept)
    return missing


def missing_keys_detail(missing: Sequence[str], source: str) -> str:
    names = ", ".join(f"'{key_id}'" for key_id in missing)
    return (
        f"Secrets of webhooks, callbacks, arguments or results were sealed with {names}, which {source} does not have. Restore "
        "it from a backup. If it is lost, run `ringback doctor --accept-lost-keys` once and start again: webhooks then need "
        "new secrets, unsent callbacks and sealed arguments and results are lost, and resume tokens of that key are refused."
    )


def differing_keys_detail(differing: Sequence[str], source: str) -> str:
    names = ", ".join(f"'{key_id}'" for key_id in differing)
    return (
        f"{source} has another key with the id {names} than the one that seals the stored data. All nodes need the same keys: "
        "copy the keys of a node that works. A new key needs an id of its own; `ringback keys ring` makes one."
    )
