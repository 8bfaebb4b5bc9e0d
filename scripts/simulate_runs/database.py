"""The shared database of a simulation: the SQLite store's rows and statements, in memory, without its writer, lock and threads.

Units are serial: each runs at one instant, or pauses around its statements and holds the database meanwhile (`steps`). What
concurrent transactions do to one another's rows is not simulated: the conformance suite shows it on a real PostgreSQL.
"""

import re
import sqlite3
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Final, Protocol, TypeVar

from ringback.domain.clock import from_epoch_milliseconds
from ringback.domain.ports import Transaction
from ringback.signing.sealing import KEY_BYTES, AesGcmSealer
from ringback.storage.rows.statements import Statements
from ringback.storage.rows.webhook_reader import CachingWebhookReader
from ringback.storage.sqlite.database import STATEMENTS_CACHED
from ringback.storage.sqlite.migrator import apply_migrations, load_migrations
from ringback.storage.sqlite.statements import statements_on
from ringback.storage.sqlite.transaction import SqliteTransaction
from ringback.storage.sqlite.unit_of_work import run_to_completion
from ringback.storage.units import UnitOfWork
from scripts.simulate_runs.clock import STARTED_AT, NodeClock
from scripts.simulate_runs.steps import PausingStatements, SteppedUnit

T = TypeVar("T")


FIRST_SEALING_KEY: Final = "first"
SECOND_SEALING_KEY: Final = "second"
SEALING_KEYS: Final = {FIRST_SEALING_KEY: b"k" * KEY_BYTES, SECOND_SEALING_KEY: b"l" * KEY_BYTES}
"""The key ring of every process. A rotation begins once all have the second key."""


class EmptyDatabase:
    """A migrated database in memory, which many simulations use one after the other.

    Emptying it costs less than a new connection, which would compile every statement again. No foreign key of the schema is
    deferred, so a savepoint refuses what a transaction refuses.
    """

    def __init__(self) -> None:
        self.connection = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, cached_statements=2 * STATEMENTS_CACHED
        )
        self.connection.row_factory = sqlite3.Row
        self.open_statements = statements_on(self.connection)
        self.connection.execute("PRAGMA temp_store = MEMORY")
        apply_migrations(self.connection, load_migrations(), now=from_epoch_milliseconds(STARTED_AT))
        self.lease_ends: list[LeaseEnd] = []
        """What the open unit has ended so far."""
        self.connection.create_function("note_lease", 6, lambda *row: self.lease_ends.append(LeaseEnd(*row)))
        self.connection.executescript(_AUDIT)
        self.tables = [row[0] for row in self.connection.execute(_TABLES)]
        self.connection.execute("PRAGMA foreign_keys = ON")
        self.connection.execute("BEGIN")

    def clear(self) -> None:
        """Bring back the rows of the first moment: a whole simulation is one transaction, and its units are savepoints."""
        self.connection.rollback()
        self.connection.execute("BEGIN")
        self.lease_ends.clear()


_TABLES: Final = """
    SELECT name FROM sqlite_master WHERE type = 'table' AND (name NOT LIKE 'sqlite_%' OR name = 'sqlite_sequence')
"""


_AUDIT: Final = """
    CREATE TEMP TRIGGER call_lease_ends AFTER UPDATE OF phase ON calls WHEN OLD.phase = 'running' AND NEW.phase <> 'running'
    BEGIN SELECT note_lease('call', OLD.id, OLD.lease_owner, OLD.lease_until, NEW.phase, NEW.outcome); END;
    CREATE TEMP TRIGGER delivery_lease_ends AFTER UPDATE OF state ON deliveries
    WHEN OLD.state = 'leased' AND NEW.state <> 'leased'
    BEGIN SELECT note_lease('delivery', OLD.id, OLD.lease_owner, OLD.lease_until, NEW.state, NULL); END;
    CREATE TEMP TRIGGER call_lease_begins AFTER UPDATE OF phase ON calls WHEN OLD.phase <> 'running' AND NEW.phase = 'running'
    BEGIN SELECT note_lease('start', OLD.id, NEW.lease_owner, NEW.lease_until, NEW.upstream, NULL); END;
    CREATE TEMP TRIGGER call_begins AFTER INSERT ON calls
    BEGIN SELECT note_lease('new', NEW.id, NEW.principal, 0, NEW.phase, NULL); END;

    CREATE TEMP TABLE revoked_leases (webhook_id TEXT, event_id TEXT, lease_owner TEXT, lease_until INTEGER);
    CREATE TEMP TRIGGER delivery_cancellations AFTER UPDATE OF state ON deliveries
    WHEN OLD.state = 'leased' AND NEW.state = 'cancelled'
    BEGIN INSERT INTO revoked_leases VALUES (OLD.webhook_id, OLD.event_id, OLD.lease_owner, OLD.lease_until); END;
    CREATE TEMP TRIGGER delivery_erasures AFTER DELETE ON deliveries WHEN OLD.state = 'leased'
    BEGIN INSERT INTO revoked_leases VALUES (OLD.webhook_id, OLD.event_id, OLD.lease_owner, OLD.lease_until); END;
"""
"""`note_lease` is called for every end of a lease, every beginning of a call's, and every new call, in the unit that brings it
about.

`revoked_leases` are those of deliveries that were cancelled or erased, until the end of the run: nothing informs their owners,
which may still send.
"""


@dataclass(frozen=True, slots=True)
class LeaseEnd:
    """A unit has ended a lease."""

    what: str
    """call | delivery; start: not an end, but a call that a node leases; new: an accepted call"""
    id: str
    owner: str
    """Whose lease it was; of a new call, the principal."""
    until: int
    state: str
    """The phase of the call, or the state of the delivery, after it; of a start, the upstream."""
    outcome: str | None


class NodeConnection:
    """What the units of one process have of their node: its clock, and the key with which it seals."""

    def __init__(self, clock: NodeClock, chance: Random, *, sealing_key: str) -> None:
        self.clock = clock
        self.sealer = AesGcmSealer(SEALING_KEYS, current=sealing_key, random_bytes=chance.randbytes)
        self.webhook_reader = CachingWebhookReader(self.sealer)


class ConnectedNode(Protocol):
    """What the database knows of a node."""

    def receive_notifications(self, topics: Sequence[str]) -> None: ...


class SharedDatabase:
    """The rows, and the nodes that are connected. `chance` draws every latency."""

    def __init__(self, empty: EmptyDatabase, chance: Random) -> None:
        self._connection = empty.connection
        self._open_statements = empty.open_statements
        self._lease_ends = empty.lease_ends
        self._tables = empty.tables
        self.chance = chance
        self._nodes: list[ConnectedNode] = []
        self._holder: ConnectedNode | None = None
        """The node whose open unit holds the database between two of its steps."""
        self._held_by: object | None = None
        """The unit that does."""

        self._waiters: list[Callable[[], None]] = []

    @property
    def is_held(self) -> bool:
        return self._held_by is not None

    def on_release(self, callback: Callable[[], None]) -> None:
        """Call back once the unit that holds the database has ended."""
        self._waiters.append(callback)

    def connect(self, node: ConnectedNode) -> None:
        self._nodes.append(node)

    def disconnect(self, node: ConnectedNode) -> None:
        self._nodes.remove(node)
        self.abort_unit(node)

    def run_unit(self, unit: UnitOfWork, seams: NodeConnection) -> None:
        """Run the unit in a new transaction, and leave it open. An error of the unit has rolled it back."""
        self._connection.execute("SAVEPOINT unit")
        transaction = self._make_transaction(seams, self._open_statements)
        unit.begin_run(transaction)
        try:
            unit.value = run_to_completion(unit.work(transaction))
        except Exception as error:  # noqa: BLE001 - boundary: the error is its caller's
            unit.error = error
            self.roll_back()

    def begin_steps(self, unit: UnitOfWork, seams: NodeConnection, node: ConnectedNode) -> SteppedUnit:
        """Prepare a run of the unit that pauses around its statements. The first of them takes the database."""
        has_paused = False

        def enter() -> bool:
            nonlocal has_paused
            if not has_paused:
                has_paused = True
            elif self._held_by is None:
                self._connection.execute("SAVEPOINT unit")
                self._holder, self._held_by = node, unit
            return self._held_by is unit

        transaction = self._make_transaction(seams, partial(PausingStatements, enter, self._connection))
        unit.begin_run(transaction)
        return SteppedUnit(unit, transaction)

    def holds(self, unit: UnitOfWork) -> bool:
        """Whether the unit has run a statement, and has neither ended nor been aborted."""
        return self._held_by is unit

    def abort_unit(self, node: ConnectedNode) -> None:
        """Roll back the open unit of a node that has died, or does not go on."""
        if self._holder is node:
            self.roll_back()

    def abort_open_unit(self) -> None:
        """Roll back the unit that an error of the simulation has left open, if there is one."""
        with suppress(sqlite3.OperationalError):
            self._connection.execute("ROLLBACK TO unit")

    def commit(self) -> Sequence[LeaseEnd]:
        """Commit the open unit, and return the leases that it has ended."""
        self._release()
        self._connection.execute("RELEASE unit")
        if not self._lease_ends:
            return ()
        ends = list(self._lease_ends)
        self._lease_ends.clear()
        return ends

    def roll_back(self) -> None:
        self._release()
        self._lease_ends.clear()
        self._connection.execute("ROLLBACK TO unit")
        self._connection.execute("RELEASE unit")

    def _release(self) -> None:
        """Wake the units that wait. Each draws its pause, so the next one is not the one that has waited longest."""
        self._holder = self._held_by = None
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for callback in waiters:
                callback()

    def read(self, work: Callable[[Transaction], Awaitable[T]], seams: NodeConnection) -> T:
        """Run a unit that only reads. It runs at one instant, so it needs no transaction to see one snapshot."""
        return run_to_completion(work(self._make_transaction(seams, self._open_statements)))

    def query(self, statement: str, **parameters: Any) -> list[sqlite3.Row]:
        """For checks: rows as they are now."""
        return self._connection.execute(statement, parameters).fetchall()

    def find_text(self, text: str, *, kept: Collection[str]) -> Sequence[str]:
        """For checks: the columns that contain the text as a word, but for these ("table.column")."""
        searched = text.encode()
        pattern = re.compile(rb"(?<![\w-])" + re.escape(searched) + rb"(?!\w)")
        found: dict[str, None] = {}
        for table in self._tables:
            for row in self._connection.execute(f"SELECT * FROM {table}"):  # noqa: S608 - a name from the schema
                for column, value in zip(row.keys(), row, strict=True):
                    data = value if isinstance(value, bytes) else str(value).encode()
                    if searched in data and f"{table}.{column}" not in kept and pattern.search(data):
                        found[f"{table}.{column}"] = None
        return list(found)

    def publish(self, topics: Sequence[str], sender: ConnectedNode) -> None:
        """Notify the other nodes."""
        for node in self._nodes if topics else ():
            if node is not sender:
                node.receive_notifications(topics)

    def _make_transaction(
        self, seams: NodeConnection, open_statements: Callable[[str], Statements]
    ) -> SqliteTransaction:
        return SqliteTransaction(
            self._connection,
            open_statements,
            sealer=seams.sealer,
            webhook_reader=seams.webhook_reader,
            now=seams.clock.now(),
        )
