"""Encryption at rest: the sealer, and ports of the store for sealed columns and their keys."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol


class SealedColumn(StrEnum):
    """The columns that hold sealed values."""

    SECRETS = "webhooks.secrets"
    BODIES = "bodies.body"
    SESSIONS = "mcp_sessions.state"
    LOGINS = "upstream_logins.request"
    TOKENS = "upstream_tokens.secrets"
    CLIENTS = "oauth_clients.client"
    ARGUMENTS = "inputs.arguments"
    """A call's arguments and `_meta`, if the sealer `seals_content`."""
    RESULTS = "results.body"


DURABLE_COLUMNS: Final = (
    SealedColumn.SECRETS,
    SealedColumn.BODIES,
    SealedColumn.ARGUMENTS,
    SealedColumn.RESULTS,
    SealedColumn.TOKENS,
)
"""The columns whose loss an operator must know of. A session that cannot be unsealed is refused as an unknown one, and its
client begins a new one. An OAuth client is registered again, and a login ends within minutes."""
RESEALED_COLUMNS: Final = (
    SealedColumn.SECRETS,
    SealedColumn.BODIES,
    SealedColumn.SESSIONS,
    SealedColumn.LOGINS,
    SealedColumn.TOKENS,
    SealedColumn.CLIENTS,
)
"""The columns whose values get the newest key. Arguments and results can have megabytes, and expire after some days instead."""
RESEALED_BYTES_MAX: Final = 2 * 1024 * 1024
"""Of bodies that one unit of work seals again. It holds them in memory, and SQLite's only writer meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResealStep:
    """The result of one step through a column."""

    last_id: str | None
    """The id of the last row read; None at the end of the column."""
    resealed: int
    unreadable: int
    """Values sealed with a key that is missing from the ring. They are kept, because the key may be restored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedCountStep:
    """The counts of one step through a column."""

    last_id: str | None
    """The id of the last row counted; None at the end of the column."""
    counts_by_key: Mapping[str, int]


class SealedRows(Protocol):
    async def count_by_key(self, column: SealedColumn, *, after: str, limit: int) -> SealedCountStep:
        """How many values each key sealed, among the next `limit` rows after this id.

        Fewer rows, but at least one, if their values are large.
        """
        ...

    async def reseal(self, column: SealedColumn, *, after: str, limit: int) -> ResealStep:
        """Seal values of older keys with the newest key, among the next `limit` rows after this id."""
        ...


@dataclass(frozen=True, slots=True)
class SealingKey:
    """A key that seals stored values. The key ring has the key itself."""

    lost_at: datetime | None = None
    """When an operator accepted its loss; None: not accepted."""
    check_value: bytes | None = None
    """Distinguishes it from other keys with its id; None until a service that has it starts."""


class SealingKeyRows(Protocol):
    """The keys that sealed stored values, by id."""

    async def list_all(self) -> Mapping[str, SealingKey]: ...

    async def add(self, key_id: str, check_value: bytes | None) -> None:
        """Insert the key if it is absent. A key that was accepted as lost is lost no more. An earlier check value is kept."""
        ...

    async def lacks_any(self) -> bool:
        """Whether another process seals with a key that this one does not have, or has otherwise.

        Then a value that cannot be unsealed here may be readable there. Keys that were accepted as lost do not count.
        """
        ...

    async def remove(self, key_id: str) -> None: ...

    async def accept_loss(self, key_id: str, *, now: datetime) -> None: ...


class Sealer(Protocol):
    """Encryption at rest. `associated_data` names table, row and column, so that a ciphertext is valid only there."""

    def seal(self, plaintext: bytes, *, associated_data: str) -> bytes: ...

    def unseal(self, ciphertext: bytes, *, associated_data: str) -> bytes: ...

    @property
    def seals_content(self) -> bool:
        """Whether arguments and results are sealed too. What was written before stays as it is, and readable."""
        ...

    @property
    def current_key_id(self) -> str:
        """The key that seals."""
        ...

    @property
    def check_values(self) -> Mapping[str, bytes]:
        """For each key id the value that distinguishes its key from others."""
        ...

    def is_sealed_with_newest_key(self, ciphertext: bytes) -> bool:
        """Whether the newest key sealed it."""
        ...
