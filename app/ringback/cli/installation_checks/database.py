"""The checks of `ringback doctor` on the database and the key ring."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringback.domain.clock import SystemClock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.domain.roles import Role
from ringback.keyring import find_key_file, key_ring_source, load_key_ring
from ringback.resealing import count_sealed_by_key
from ringback.service_database import open_shared_store
from ringback.services.insights.missing_roles import find_missing_roles, has_node
from ringback.services.sealing_keys import differing_keys_detail, find_differing_keys
from ringback.settings import Settings, SettingsError
from ringback.storage.open import check_integrity, find_refusal, inspect_server
from ringback.storage.urls import describe_database, find_sqlite_path

if TYPE_CHECKING:
    from ringback.storage.postgres.inspection import ServerReport

CLOCK_SKEW_SECONDS_MAX: Final = 60.0
"""A fifth of the 300 s by which a signature's timestamp may differ; network and retries use the rest."""
OVERDUE_SECONDS_MAX: Final = 300.0
"""The longest pause of a circuit breaker: a delivery that is due for longer waits for something else."""
QUEUE_AGE_SECONDS_MAX: Final = 300.0
"""As the alert rule RingbackCallsQueued (scripts/deploy/alerts.yaml)."""
_QUEUE_ADVICE: Final = (
    "List the calls that wait: ringback calls --queued --all-principals. Look at their upstream in GET /v1/upstreams: `state` "
    "says whether it can be reached, `intake` whether an operator has paused it, and `queued_calls` how many calls wait for "
    "the `max_concurrent` places of each node, of which one of several principals gets three quarters at most. An upstream "
    "that is not listed is not configured any more. If no call of any upstream runs, start a node with the role runner."
)
API_KEYS_CHECK: Final = "API keys"
"""The name of the check that a database has if it can be opened."""
NODE_CONNECTIONS_MAX: Final = 17
"""Of one node: the store's `ConnectionLimits`, and one for notifications. A test compares them."""

_STANDBY: Final = (
    "It is a standby, which only reads. Name the primary in RINGBACK_DATABASE_URL, or all servers and "
    "target_session_attrs=read-write."
)
IsOpen = Callable[[], Awaitable[bool | None]]
"""Whether the service that runs on the database needs no API key; None if it does not say."""


@dataclass(frozen=True, slots=True)
class Finding:
    about: str
    ok: bool
    detail: str
    is_skipped: bool = False
    """Nothing was checked, for a reason that is no fault. `detail` says it."""


def skip(about: str, detail: str) -> Finding:
    return Finding(about, ok=True, detail=detail, is_skipped=True)


def fine(about: str, detail: str) -> Finding:
    return Finding(about, ok=True, detail=detail)


def fault(about: str, detail: str) -> Finding:
    return Finding(about, ok=False, detail=detail)


async def check_database(settings: Settings, *, is_open: IsOpen) -> list[Finding]:
    """Whether the database opens and is writable, and whether the key ring has the keys that encrypted it.

    `is_open` is asked if the database has no API key.
    """
    try:
        path = find_sqlite_path(settings.database_url)
    except StoreUnavailable as problem:
        return [fault("database", problem.detail)]
    if path is None:
        return await _check_server(settings, is_open=is_open)
    absent = _check_path(path)
    return await _check_file(settings, path, is_open=is_open) if absent is None else [absent]


async def _check_file(settings: Settings, path: Path, *, is_open: IsOpen) -> list[Finding]:
    key = _check_key_file(settings)
    if refusal := find_refusal(settings.database_url):
        return [key, fault("database file", refusal.detail)]
    if not key.ok:
        return [key]
    try:
        async with open_shared_store(settings) as store:
            files = await _check_files(settings)
            await store.write(lambda tx: tx.write_probe.write_probe_row())
            return [
                fine("database", f"{path} opens and is writable"),
                *files,
                key,
                *await _check_store(store, settings, is_open=is_open),
            ]
    except StoreUnavailable as problem:
        return [key, fault("database", problem.detail)]


async def _check_server(settings: Settings, *, is_open: IsOpen) -> list[Finding]:
    key = _check_key_ring(settings)
    if not key.ok:
        return [key]
    shown = describe_database(settings.database_url)
    try:
        server = await inspect_server(settings.database_url)
        if server.is_standby:
            return [key, *describe_server(server, now=SystemClock().wall_time())]
        if server.schema_applied < server.schema_known:  # opening it would migrate it, and a restore needs an empty one
            reachable = fine("database", f"{shown} is reachable")
            return [reachable, *describe_server(server, now=SystemClock().wall_time()), key]
        async with open_shared_store(settings) as store:
            await store.write(lambda tx: tx.write_probe.write_probe_row())
            return [
                fine("database", f"{shown} is reachable and writable"),
                *describe_server(server, now=SystemClock().wall_time()),
                key,
                *await _check_store(store, settings, is_open=is_open),
            ]
    except StoreUnavailable as problem:
        return [key, fault("database", problem.detail)]


def describe_server(server: "ServerReport", *, now: datetime) -> list[Finding]:
    """`now` is this machine's wall time."""
    schema = f"version {server.schema_applied} of {server.schema_known}"
    if server.schema_applied < server.schema_known:
        schema += "; the next start of a node, or `ringback migrate`, applies the rest. The doctor reads no further until then"
    return [
        _check_server_kind(server),
        fine("database schema", schema),
        _check_connections(server),
        _check_server_clock(server, now),
    ]


def _check_server_kind(server: "ServerReport") -> Finding:
    about = "database server"
    if server.is_standby:
        return fault(about, _STANDBY)
    if not server.is_durable:
        return fault(about, "fsync is off: a crash of the server loses acknowledged calls. Set fsync = on.")
    return fine(about, f"PostgreSQL {server.version}")


def _check_connections(server: "ServerReport") -> Finding:
    free, used = (
        server.connections_max - server.connections,
        f"{server.connections} of {server.connections_max} are used",
    )
    if free < NODE_CONNECTIONS_MAX:
        detail = f"{used}, and a node needs up to {NODE_CONNECTIONS_MAX}. Raise max_connections, or run fewer nodes."
        return fault("database connections", detail)
    return fine("database connections", used)


def _check_server_clock(server: "ServerReport", now: datetime) -> Finding:
    """Nodes follow the server's clock, so that only the server's own error matters to receivers."""
    offset = (now - server.now).total_seconds()
    if abs(offset) > CLOCK_SKEW_SECONDS_MAX:
        return fault(
            "database clock",
            f"It is {-offset:+.0f} s from this machine's. Nodes follow it, and signatures contain it. Synchronise both by NTP.",
        )
    return fine("database clock", "it agrees with this machine's")


async def _check_files(settings: Settings) -> list[Finding]:
    """Whether the file is undamaged, and whether it has every commit that the service acknowledged."""
    found = await asyncio.to_thread(check_integrity, settings.database_url, clock=SystemClock())
    if found.damage is not None:
        return [
            fault(
                "database file",
                f"It is damaged ({found.damage}). Stop the service and restore a backup, or recover the readable part: "
                "sqlite3 DATABASE .recover",
            )
        ]
    if found.missing_commits:
        return [
            fault(
                "database file",
                f"Its last {found.missing_commits} commits are missing: the -wal file was removed after a crash or is "
                "damaged, or an older backup was restored. Put an undamaged -wal file back if you have one. To accept the "
                "loss, stop the service and run: ringback doctor --accept-restore",
            )
        ]
    detail = "it is undamaged" if found.is_complete else "no damage in the part that was read in ten seconds"
    return [fine("database file", detail)]


def _check_path(path: Path) -> Finding | None:
    """What there is to say if no database is at this path, or if this user cannot see whether one is."""
    try:
        exists = path.exists()
    except OSError as problem:
        return fault("database", f"{path}: {problem.strerror}. Run this as the service's user.")
    if not exists:
        return _missing_database(path)
    if path.is_dir():
        return fault("database", f"{path} is a folder. Name a file in it, such as {path / 'ringback.db'}.")
    return None


def _missing_database(path: Path) -> Finding:
    folder = path.absolute().parent
    if folder.is_dir() and os.access(folder, os.W_OK):
        return fine("database", f"{path} does not exist yet; `ringback serve` creates it")
    return fault("database", f"{path} cannot be created: create the folder {folder}, and give this user write access.")


def _check_key_file(settings: Settings) -> Finding:
    file = find_key_file(settings.database_url)
    if file is None or settings.secret_keys is not None:
        return _check_key_ring(settings)
    if not file.exists():
        return fault(
            "key ring",
            f"{file} is missing, so the secrets in the database cannot be decrypted. Restore the file. If it is lost: "
            "ringback doctor --accept-lost-keys",
        )
    ring = _check_key_ring(settings)
    if ring.ok and file.stat().st_mode & 0o077:
        return fault("key ring", f"Other users can read {file}. Run: chmod 600 {file}")
    return ring


def _check_key_ring(settings: Settings) -> Finding:
    try:
        ring = load_key_ring(settings, random_bytes=os.urandom)
    except SettingsError as problem:
        return fault("key ring", str(problem))
    return fine("key ring", f"'{ring.current_id}' is the current key of {len(ring.keys)}")


async def _check_store(store: Store, settings: Settings, *, is_open: IsOpen) -> list[Finding]:
    keys = [key for key in await store.read(lambda tx: tx.api_keys.list_all()) if key.revoked_at is None]
    principals = {key.principal for key in keys}
    found = [
        await _check_sealed(store, settings),
        await _check_queue(store),
        await _check_deliveries(store),
        *await check_roles_run(store),
    ]
    if settings.auth == "off":
        return [*found, fine(API_KEYS_CHECK, "authentication is off, on this machine only")]
    if not keys and settings.oidc_issuer is None:
        return [*found, _describe_missing_keys(is_open=await is_open())]
    return [*found, fine(API_KEYS_CHECK, _count_keys(len(keys), len(principals)))]


def _describe_missing_keys(*, is_open: bool | None) -> Finding:
    if is_open is None:
        return fine(API_KEYS_CHECK, "there is none; the service does not say whether it asks for one")
    if is_open:
        return fine(API_KEYS_CHECK, "there is none, and the running service asks for none")
    return fault(API_KEYS_CHECK, "There is none, so no client has access. Run: ringback keys create PRINCIPAL")


def _count_keys(keys: int, principals: int) -> str:
    return (
        f"{keys} {'key' if keys == 1 else 'keys'}, of {principals} {'principal' if principals == 1 else 'principals'}"
    )


async def _check_queue(store: Store) -> Finding:
    """Whether calls wait long for a runner or for a place of their upstream."""

    async def read_age(tx: Transaction) -> float | None:
        since = await tx.usage.oldest_queued_since()
        return None if since is None else (tx.now() - since).total_seconds()

    age = await store.read(read_age)
    if age is not None and age > QUEUE_AGE_SECONDS_MAX:
        return fault(
            "queue",
            f"A call has waited for {age / 60:.0f} minutes. {_QUEUE_ADVICE}",
        )
    return fine("queue", "no call is queued" if age is None else f"the oldest call has waited for {max(age, 0):.0f} s")


async def check_roles_run(store: Store) -> list[Finding]:
    """Whether nodes run the roles that work waits for. A database of one process has none of others."""
    if store.is_exclusive:
        return []
    if missing := await find_missing_roles(store):
        detail = (
            f"Work has waited for a minute for a role that no node runs: {', '.join(missing)}. Start a node with it."
        )
        return [fault("roles of nodes", detail)]

    async def lacks_janitor(tx: Transaction) -> bool:
        return await has_node(tx, Role.RUNNER) and not await has_node(tx, Role.JANITOR)

    if await store.read(lacks_janitor):
        detail = (
            "No node runs the role janitor: what a dead node leaves is not recovered, and nothing expires. Start one."
        )
        return [fault("roles of nodes", detail)]
    return [fine("roles of nodes", "no work waits for a role that no node runs")]


async def _check_deliveries(store: Store) -> Finding:
    """Whether callbacks wait longer than any pause of a circuit breaker."""

    async def read_age(tx: Transaction) -> float:
        due = await tx.delivery_queue.next_due_at()
        return 0.0 if due is None else (tx.now() - due).total_seconds()

    return describe_overdue("deliveries", await store.read(read_age))


def describe_overdue(about: str, age_seconds: float) -> Finding:
    """How long the oldest due delivery has waited."""
    if age_seconds > OVERDUE_SECONDS_MAX:
        return fault(
            about,
            f"the oldest due one waits for {age_seconds:.0f} s. Does a node with the role dispatcher run? "
            "Else its webhook's breaker is open, or the receivers are slow.",
        )
    return fine(about, "none is overdue")


async def _check_sealed(store: Store, settings: Settings) -> Finding:
    ring = load_key_ring(settings, random_bytes=os.urandom)
    if differing := await store.read(lambda tx: find_differing_keys(tx, ring.compute_check_values())):
        return fault("sealed data", differing_keys_detail(differing, key_ring_source(settings)))
    counts = await count_sealed_by_key(store)
    registered = await store.read(lambda tx: tx.sealing_keys.list_all())
    accepted = {key_id for key_id, key in registered.items() if key.lost_at}
    if missing := sorted(counts.keys() - ring.keys.keys() - accepted):
        lost = sum(counts[key_id] for key_id in missing)
        return fault(
            "sealed data",
            f"{lost} secrets and callbacks were encrypted with keys that are not in the key ring: {', '.join(missing)}. "
            "Restore these keys. If they are lost: ringback doctor --accept-lost-keys",
        )
    return fine("sealed data", "the key ring decrypts it")
