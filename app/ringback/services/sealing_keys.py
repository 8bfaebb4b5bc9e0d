"""Keys that sealed what is stored, and are not in the key ring any more.

    started with such a key missing  ──▶  refused, until the key is back or an operator accepts that it is lost
    nothing is left that it sealed   ──▶  forgotten: it was dropped after everything was sealed anew

A service that went on without the key would let receivers wait for callbacks that it cannot read, and nobody would know why.
"""

from collections.abc import Collection, Sequence

from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Transaction


async def missing_keys(tx: Transaction, ring: Collection[str]) -> Sequence[str]:
    """The ids of keys that sealed something that is stored, are not in the ring, and are not accepted as lost."""
    known = await tx.sealing_keys.all()
    absent = [key_id for key_id, lost_at in known.items() if lost_at is None and key_id not in ring]
    return [key_id for key_id in absent if await tx.sealing_keys.has_sealed(key_id)]


async def begin_sealing(tx: Transaction, ring: Collection[str], *, current: str, source: str) -> None:
    """Note which key seals from now on; raises `StoreUnavailable` when one is missing that reads what is stored."""
    if missing := await missing_keys(tx, ring):
        raise StoreUnavailable(explain_missing(missing, source), needs_operator=True)
    for key_id, lost_at in (await tx.sealing_keys.all()).items():
        if key_id not in ring and lost_at is None:
            await tx.sealing_keys.forget(key_id)
    await tx.sealing_keys.add(current)


async def accept_loss(tx: Transaction, ring: Collection[str]) -> Sequence[str]:
    """From now on the service starts without the keys that are missing; their ids."""
    missing = await missing_keys(tx, ring)
    for key_id in missing:
        await tx.sealing_keys.accept_loss(key_id, now=tx.now())
    return missing


def explain_missing(missing: Sequence[str], source: str) -> str:
    names = ", ".join(f"'{key_id}'" for key_id in missing)
    return (
        f"Secrets of webhooks or stored callbacks were sealed with {names}, which {source} does not have. Restore it from a "
        "backup. If it is lost for good, run `ringback doctor --accept-lost-keys` once and start again: webhooks then need new "
        "secrets, callbacks that were not sent yet are lost, and resume tokens made with that key are refused."
    )
