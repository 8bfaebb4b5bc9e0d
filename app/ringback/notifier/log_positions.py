"""Positions in a principal's event log. The mark of a position's event shows whether the log still is the same one."""

from collections.abc import Collection, Mapping

from ringback.domain.cursor import LogPosition, event_mark, is_position_in_log
from ringback.domain.ids import EventId
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal


async def read_log_position(tx: Transaction, principal: Principal, seq: int) -> LogPosition:
    """The position after the event with this sequence number."""
    event_id = await tx.event_log.get_event_id(principal, seq) if seq > 0 else None
    return LogPosition(seq, None if event_id is None else event_mark(event_id))


async def read_log_positions(tx: Transaction, principal: Principal, seqs: Collection[int]) -> dict[int, LogPosition]:
    """The positions after the events with these sequence numbers."""
    ids: Mapping[int, EventId] = {}
    if written := [seq for seq in seqs if seq > 0]:
        ids = await tx.event_log.get_event_ids(principal, written)
    return {seq: LogPosition(seq, event_mark(ids[seq]) if seq in ids else None) for seq in seqs}


async def log_contains_position(tx: Transaction, principal: Principal, position: LogPosition) -> bool:
    """Whether the position belongs to the principal's present log. It does not after the restore of an older backup."""
    return is_position_in_log(
        position,
        head=await tx.event_log.get_head(principal),
        retention_floor=await tx.event_log.get_retention_floor(principal),
        event_id=None if position.mark is None else await tx.event_log.get_event_id(principal, position.seq),
    )
