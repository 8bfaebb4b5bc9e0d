"""Reads and writes records through a state manager: compare-and-set, so that two processes never overwrite each other."""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from ringback.client.durable.errors import DurableCallError, StateConflict
from ringback.client.durable.record import CallRecord
from ringback.client.durable.state import RequestStateManager, StoredState
from ringback.client.responses import validate_json

log = logging.getLogger(__name__)

WRITE_ATTEMPTS_MAX: Final = 50
"""Two processes that both follow a call write about once a second each; so many conflicts in a row are a fault."""
_VERSION_BYTES: Final = 8
_PAGE_SIZE: Final = 16
"""A state contains the result of its call, which may be large."""


@dataclass(frozen=True, slots=True)
class _Read:
    record: CallRecord
    version: str


class CallJournal:
    def __init__(self, state: RequestStateManager) -> None:
        self._state = state

    @property
    def is_shared(self) -> bool:
        return self._state.is_shared

    async def create(self, record: CallRecord) -> bool:
        """Write a new record; False if there is one with this id."""
        return await self._write(record, replaces=None)

    async def read(self, call_id: str) -> CallRecord | None:
        read = await self._read(call_id)
        return None if read is None else read.record

    async def update(self, call_id: str, change: Callable[[CallRecord], CallRecord]) -> CallRecord | None:
        """Change a record; `change` may be called several times. None if the record is gone."""
        for _ in range(WRITE_ATTEMPTS_MAX):
            if (read := await self._read(call_id)) is None:
                return None
            changed = change(read.record)
            if changed == read.record or await self._write(changed, replaces=read.version):
                return changed
        raise StateConflict(f"The state of call {call_id} changed {WRITE_ATTEMPTS_MAX} times meanwhile. Try again.")

    async def delete(self, call_id: str) -> None:
        await self._state.delete(call_id)

    async def iterate_records(self) -> AsyncIterator[CallRecord]:
        """The records; one that this version cannot read is left out with a warning, because it hides no other."""
        after = ""
        while True:
            page = await self._state.list_states(after=after, limit=_PAGE_SIZE)
            for state in page:
                if (record := _parse_or_warn(state)) is not None:
                    yield record
            if len(page) < _PAGE_SIZE:
                return
            after = page[-1].key
            await asyncio.sleep(0)  # a state in memory waits for nothing

    async def _read(self, call_id: str) -> _Read | None:
        state = await self._state.read(call_id)
        return None if state is None else _Read(_parse(state), state.version)

    async def _write(self, record: CallRecord, *, replaces: str | None) -> bool:
        state = StoredState(
            key=record.handle.id,
            version=secrets.token_hex(_VERSION_BYTES),
            text=record.model_dump_json(),
            expires_at=record.expires_at,
        )
        return await self._state.write(state, replaces=replaces)


def _parse_or_warn(state: StoredState) -> CallRecord | None:
    try:
        return _parse(state)
    except DurableCallError as error:
        log.warning("%s It is left out.", error)
        return None


def _parse(state: StoredState) -> CallRecord:
    try:
        return validate_json(CallRecord, state.text)
    except ValidationError:
        raise DurableCallError(
            f"The state {state.key} is not one of this version of Ringback's client. Was it written by a newer one?"
        ) from None
