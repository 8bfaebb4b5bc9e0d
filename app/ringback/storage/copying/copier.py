"""Compares the rows of two databases batch by batch, and makes the target's equal to the source's."""

import sqlite3
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ringback.domain.errors import StoreUnavailable
from ringback.storage.copying.source import CopiedTable, CopySource, Key, Row
from ringback.storage.copying.target import CopyTarget, open_target
from ringback.storage.schema import read_schema_state
from ringback.storage.sqlite.database import explain_opening
from ringback.storage.sqlite.file_lock import FileLock
from ringback.storage.sqlite.store import lock_for_database

KEYS: Final[dict[str, tuple[str, ...]]] = {
    "calls": ("id",),
    "inputs": ("call_id",),
    "results": ("call_id",),
    "tombstones": ("call_id",),
    "events": ("principal", "seq"),
    "deliveries": ("id",),
    "bodies": ("delivery_id",),
    "attempts": ("delivery_id", "id"),
    "call_webhooks": ("call_id", "webhook_id"),
    "webhooks": ("id",),
    "subscriptions": ("id",),
    "catch_ups": ("webhook_id",),
    "challenges": ("webhook_id",),
    "webhook_rates": ("webhook_id",),
    "log_heads": ("principal",),
    "turns": ("upstream", "principal"),
    "proofs": ("principal", "url"),
    "origins": ("origin",),
    "catalog": ("upstream", "part"),
    "owned_catalog": ("owner", "upstream", "part"),
    "upstream_controls": ("upstream",),
    "joined_names": ("kind", "name"),
    "api_keys": ("id",),
    "portal_links": ("id",),
    "audit_entries": ("seq",),
    "mcp_sessions": ("id",),
    "scheduling_time": ("id",),
    "sealing_keys": ("key_id",),
    "erasures": ("id",),
    "call_resumes": ("call_id", "resumed_at", "surface"),
    "login_waits": ("call_id",),
    "login_resumptions": ("upstream", "owner"),
    "login_checks": ("upstream", "owner"),
    "unused_logins": ("upstream",),
    "event_types": ("principal", "name"),
    "event_demands": ("principal", "event_name", "topic"),
    "event_followings": ("event_name", "topic"),
    "upstream_logins": ("id",),
    "upstream_tokens": ("id",),
    "oauth_clients": ("id",),
    "insight_hours": ("principal", "upstream", "hour"),
    "insight_positions": ("id",),
}
"""The copied tables, with their keys. A table comes after those that it refers to."""
LARGE: Final = frozenset({"calls", "inputs", "results", "tombstones", "events", "deliveries", "bodies", "attempts"})
"""Tables that are copied while the service runs, too: they have most rows, and refer to none of the others."""
NOT_COPIED: Final = {
    "call_counts": "triggers count",
    "held_counts": "triggers count",
    "webhook_matches": "triggers write them",
    "subscription_counts": "triggers count",
    "byte_counts": "triggers count",
    "audit_counts": "triggers count",
    "sign_ins": "people sign in again",
    "challenges_sent": "the last minute's, for a limit on challenges",
    "leaders": "leases of nodes that have stopped",
    "write_probe": "written by each readiness check",
    "commit_count": "of the file",
    "schema_migrations": "each store has its own",
}

Report = Callable[["TableProgress"], None]


@dataclass(slots=True)
class TableProgress:
    table: str
    total: int
    """Rows of the source when the table was begun."""
    compared: int = 0
    written: int = 0
    """Rows that the target did not have, or had otherwise."""
    removed: int = 0
    """Rows that only the target had."""
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class CopyResult:
    is_finished: bool
    """False if a service has the source open: then the large tables are copied, and a second run finishes."""
    tables: list[TableProgress]
    replaced_characters: int
    is_source_marked: bool
    """Whether services refuse the source from now on."""


async def copy_database(path: Path, url: str, *, report: Report) -> CopyResult:
    """Copy the SQLite file to the PostgreSQL database, as far as a running service allows.

    A repeated copy continues where this one ended. Raises `StoreUnavailable`, which says what to do.
    """
    with _explaining_source(path), closing(CopySource(path)) as source, _locked_if_free(path, source) as lock:
        await _require_current_schema(path)
        async with open_target(url) as target:
            await target.begin(KEYS, source=str(path))
            names = [name for name in KEYS if lock is not None or name in LARGE]
            tables = [await _copy_table(name, source, target, report) for name in names]
            if lock is not None:
                await _require_equal_counts(source, target)
                await target.finish()
        is_marked = lock is not None and source.mark_moved(lock, url)
        return CopyResult(lock is not None, tables, source.replaced_characters, is_marked)


@contextmanager
def _explaining_source(path: Path) -> Generator[None]:
    """An error of SQLite is raised as `StoreUnavailable`."""
    try:
        yield
    except sqlite3.Error as error:
        raise explain_opening(error, path) from error


async def _require_current_schema(path: Path) -> None:
    state = await read_schema_state(str(path))
    if state.missing or state.applied > state.known:
        raise StoreUnavailable(
            f"'{path}' is at migration {state.applied}, and this version copies from {state.known}. Bring both to one "
            "version first: ringback migrate",
            needs_operator=True,
        )


@contextmanager
def _locked_if_free(path: Path, source: CopySource) -> Generator[FileLock | None]:
    """Keep services from the file. None if one has it open; raises `StoreUnavailable` if the lock cannot be written."""
    lock = lock_for_database(path)
    if not _acquire_if_free(lock):
        yield None
        return
    try:
        source.require_no_missing_commits(lock)
        yield lock
    finally:
        lock.release()


def _acquire_if_free(lock: FileLock) -> bool:
    try:
        lock.acquire()
    except StoreUnavailable:
        if lock.is_held():
            return False
        raise
    return True


async def _copy_table(name: str, source: CopySource, target: CopyTarget, report: Report) -> TableProgress:
    table = await target.describe_table(name, KEYS[name])
    progress = TableProgress(name, source.count(name))
    after: Key | None = None
    is_last = False
    while not is_last:
        rows, is_last = source.read_batch(table, after)
        if rows:
            until = table.key_of(rows[-1])
            await _copy_batch(table, {table.key_of(row): row for row in rows}, target, (after, until), progress)
            after = until
            report(progress)
    progress.removed += await target.delete_after(table, after)
    progress.is_done = True
    report(progress)
    return progress


async def _copy_batch(
    table: CopiedTable,
    rows: Mapping[Key, Row],
    target: CopyTarget,
    bounds: tuple[Key | None, Key],
    progress: TableProgress,
) -> None:
    progress.removed += await target.delete_others(table, *bounds, kept=rows)
    found = {table.key_of(row): row for row in await target.read_range(table, *bounds)}
    progress.compared += len(rows)
    if found == rows:
        return
    different = [key for key, row in found.items() if rows.get(key) != row]
    new = [row for key, row in rows.items() if found.get(key) != row]
    await target.replace(table, different, new)
    progress.written += len(new)
    stored = {table.key_of(row): row for row in await target.read_range(table, *bounds)}
    if stored != rows:
        different = next(key for key in rows.keys() | stored.keys() if rows.get(key) != stored.get(key))
        raise StoreUnavailable(
            f"A row of '{table.name}' was written and then read differently: {different}. This is a bug; keep the SQLite "
            "database in use.",
            needs_operator=True,
        )


async def _require_equal_counts(source: CopySource, target: CopyTarget) -> None:
    """The last check: rows are compared by now, and nothing has been lost or added behind them."""
    for name in KEYS:
        here, there = source.count(name), await target.count(name)
        if here != there:
            raise StoreUnavailable(
                f"'{name}' has {here} rows in SQLite and {there} in PostgreSQL. Does anything else write to one of them? "
                "Run the copy again.",
                needs_operator=True,
            )
    if (calls := source.count_calls_by_status()) != (counted := await target.count_calls_by_status()):
        raise StoreUnavailable(
            f"PostgreSQL counts {counted} calls, and SQLite {calls}. This is a bug.", needs_operator=True
        )
