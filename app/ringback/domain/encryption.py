"""Encryption at rest: what seals, and what is sealed as seen by whoever replaces keys, with the newest key anew."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol


class SealedColumn(StrEnum):
    """The columns that hold sealed values."""

    SECRETS = "webhooks.secrets"
    BODIES = "bodies.body"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResealStep:
    """What came of one step through a column."""

    last_id: str | None
    """The id of the last row that was looked at; None when there was none left."""
    resealed: int
    unreadable: int
    """Sealed with a key that is not in the ring any more. They stay as they are: the key may be put back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedCountStep:
    """What one step through a column has counted."""

    last_id: str | None
    """The id of the last row that was counted; None when there was none left."""
    counts_by_key: Mapping[str, int]


class SealedRows(Protocol):
    async def count_by_key(self, column: SealedColumn, *, after: str, limit: int) -> SealedCountStep:
        """How many values each key sealed, among the next `limit` rows after this id."""
        ...

    async def reseal(self, column: SealedColumn, *, after: str, limit: int) -> ResealStep:
        """Seal anew what an older key sealed, of the next `limit` rows after this id."""
        ...


class SealingKeyRows(Protocol):
    """The ids of the keys that sealed what is stored. The keys themselves are in the key ring."""

    async def list_all(self) -> Mapping[str, datetime | None]:
        """Each key's id, and since when an operator accepts that it is lost."""
        ...

    async def add(self, key_id: str) -> None: ...

    async def remove(self, key_id: str) -> None: ...

    async def accept_loss(self, key_id: str, *, now: datetime) -> None: ...

    async def has_sealed(self, key_id: str) -> bool:
        """Whether anything that is stored was sealed with it. The first row ends the search; none means that all were read."""
        ...


class Sealer(Protocol):
    """Encryption at rest. `place` names table, row and column, so that a ciphertext is worth nothing anywhere else."""

    def seal(self, plaintext: bytes, *, associated_data: str) -> bytes: ...

    def unseal(self, ciphertext: bytes, *, associated_data: str) -> bytes: ...

    def is_sealed_with_newest_key(self, ciphertext: bytes) -> bool:
        """Whether the newest key sealed it."""
        ...
