"""Keys that sealed stored data and are missing from the key ring.

    a missing key still seals stored data   ──▶  the service refuses to start, until the key is back or accepted as lost
    a missing key seals no stored data      ──▶  its row is removed: it was dropped after all data was sealed again

Without this check, the service would start and silently fail to send callbacks that it cannot read.
"""

from collections.abc import Collection, Sequence

from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Transaction


async def find_missing_keys(tx: Transaction, key_ids: Collection[str]) -> Sequence[str]:
    """Return the ids of keys that sealed stored data, are not in the key ring, and are not accepted as lost."""
    registered = await tx.sealing_keys.list_all()
    absent = [key_id for key_id, lost_at in registered.items() if lost_at is None and key_id not in key_ids]
    return [key_id for key_id in absent if await tx.sealing_keys.has_sealed(key_id)]


async def register_current_key(tx: Transaction, key_ids: Collection[str], *, current: str, source: str) -> None:
    """Store which key seals from now on. Raises `StoreUnavailable` if a key that sealed stored data is missing."""
    if missing := await find_missing_keys(tx, key_ids):
        raise StoreUnavailable(missing_keys_detail(missing, source), needs_operator=True)
    for key_id, lost_at in (await tx.sealing_keys.list_all()).items():
        if key_id not in key_ids and lost_at is None:
            await tx.sealing_keys.remove(key_id)
    await tx.sealing_keys.add(current)


async def accept_lost_keys(tx: Transaction, key_ids: Collection[str]) -> Sequence[str]:
    """Accept the loss of the missing keys, so that the service starts without them. Return their ids."""
    missing = await find_missing_keys(tx, key_ids)
    for key_id in missing:
        await tx.sealing_keys.accept_loss(key_id, now=tx.now())
    return missing


def missing_keys_detail(missing: Sequence[str], source: str) -> str:
    names = ", ".join(f"'{key_id}'" for key_id in missing)
    return (
        f"Secrets of webhooks or stored callbacks were sealed with {names}, which {source} does not have. Restore it from a "
        "backup. If it is lost, run `ringback doctor --accept-lost-keys` once and start again: webhooks then need new "
        "secrets, unsent callbacks are lost, and resume tokens of that key are refused."
    )
