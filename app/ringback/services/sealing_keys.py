"""Keys that sealed what is stored, and are not in the key ring any more.

    started with such a key missing  ──▶  refused, until the key is back or an operator accepts that it is lost
    nothing is left that it sealed   ──▶  forgotten: it was dropped after everything was sealed anew

A service that went on without the key would let receivers wait for callbacks that it cannot read, and nobody would know why.
"""

from collections.abc import Collection, Sequence

from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Transaction


async def find_missing_keys(tx: Transaction, key_ids: Collection[str]) -> Sequence[str]:
    """The ids of keys that sealed something that is stored, are not in the ring, and are not accepted as lost."""
    registered = await tx.sealing_keys.list_all()
    absent = [key_id for key_id, lost_at in registered.items() if lost_at is None and key_id not in key_ids]
    return [key_id for key_id in absent if await tx.sealing_keys.has_sealed(key_id)]


async def register_current_key(tx: Transaction, key_ids: Collection[str], *, current: str, source: str) -> None:
    """Note which key seals from now on; raises `StoreUnavailable` when one is missing that reads what is stored."""
    if missing := await find_missing_keys(tx, key_ids):
        raise StoreUnavailable(missing_keys_detail(missing, source), needs_operator=True)
    for key_id, lost_at in (await tx.sealing_keys.list_all()).items():
        if key_id not in key_ids and lost_at is None:
            await tx.sealing_keys.remove(key_id)
    await tx.sealing_keys.add(current)


async def accept_lost_keys(tx: Transaction, key_ids: Collection[str]) -> Sequence[str]:
    """From now on the service starts without the keys that are missing; their ids."""
    missing = await find_missing_keys(tx, key_ids)
    for key_id in missing:
        await tx.sealing_keys.accept_loss(key_id, now=tx.now())
    return missing


def missing_keys_detail(missing: Sequence[str], source: str) -> str:
    names = ", ".join(f"'{key_id}'" for key_id in missing)
    return (
        f"Secrets of webhooks or stored callbacks were sealed with {names}, which {source} does not have. Restore it from a "
        "backup. If it is lost for good, run `ringback doctor --accept-lost-keys` once and start again: webhooks then need new "
        "secrets, callbacks that were not sent yet are lost, and resume tokens made with that key are refused."
    )
