"""Places in a principal's event log: made with the mark of their event, and recognised by it."""

from ringback.domain.cursor import LogPosition, event_mark, is_position_in_log
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal


async def read_log_position(tx: Transaction, principal: Principal, seq: int) -> LogPosition:
    """The place after the event with this number."""
    event_id = await tx.event_log.get_event_id(principal, seq) if seq > 0 else None
    return LogPosition(seq, None if event_id is None else event_mark(event_id))


async def log_contains_position(tx: Transaction, principal: Principal, position: LogPosition) -> bool:
    """Whether the principal's log is the one that this place is in. It is not after an older backup was restored."""
    return is_position_in_log(
        position,
        head=await tx.event_log.get_head(principal),
        retention_floor=await tx.event_log.get_retention_floor(principal),
        event_id=None if position.mark is None else await tx.event_log.get_event_id(principal, position.seq),
    )
