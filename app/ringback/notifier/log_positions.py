"""Positions in a principal's event log. The mark of a position's event shows whether the log still is the same one."""

from ringback.domain.cursor import LogPosition, event_mark, is_position_in_log
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal


async def read_log_position(tx: Transaction, principal: Principal, seq: int) -> LogPosition:
    """The position after the event with this sequence number."""
    event_id = await tx.event_log.get_event_id(principal, seq) if seq > 0 else None
    return LogPosition(seq, None if event_id is None else event_mark(event_id))


async def log_contains_position(tx: Transaction, principal: Principal, position: LogPosition) -> bool:
    """Whether the position belongs to the principal's present log. It does not after the restore of an older backup."""
    bounds = await tx.event_log.get_bounds(principal)
    return is_position_in_log(
        position,
        head=bounds.head,
        retention_floor=bounds.retention_floor,
        event_id=None if position.mark is None else await tx.event_log.get_event_id(principal, position.seq),
    )
