"""Places in a principal's event log: made with the mark of their event, and recognised by it."""

from ringback.domain.cursor import Place, is_in_log, mark_of
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal


async def place_at(tx: Transaction, principal: Principal, seq: int) -> Place:
    """The place after the event with this number."""
    event_id = await tx.event_places.id_at(principal, seq) if seq > 0 else None
    return Place(seq, None if event_id is None else mark_of(event_id))


async def knows_place(tx: Transaction, principal: Principal, place: Place) -> bool:
    """Whether the principal's log is the one that this place is in. It is not after an older backup was restored."""
    return is_in_log(
        place,
        head=await tx.event_places.head(principal),
        horizon=await tx.event_places.horizon(principal),
        event_id=None if place.mark is None else await tx.event_places.id_at(principal, place.seq),
    )
