"""`ringback keys`: API keys, in the service's database whether the service runs or not, and the service's own keys."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Annotated, Any, Final, NamedTuple, TypeVar

import typer
from rich.table import Table

from ringback.cli.arguments import parse_duration
from ringback.cli.output import AsJson, create_console, print_json, print_message, print_output, print_table
from ringback.cli.server_options import Database, exit_on_service_errors
from ringback.domain.clock import format_iso
from ringback.domain.errors import StoreUnavailable
from ringback.domain.principal import DEFAULT_SCOPES, SCOPES_TEXT, ApiKey, Scope
from ringback.keyring import load_key_ring, missing_key_file, rotate_key_file
from ringback.resealing import count_sealed_by_key
from ringback.service_database import open_api_keys, open_shared_store
from ringback.service_database.key_ring import lacks_key_file
from ringback.services.access.api_keys import ApiKeys
from ringback.settings import Settings, load_settings
from ringback.signing import ed25519, sealing
from ringback.signing.sealing import KeyRing
from ringback.storage.schema import read_schema_state
from ringback.storage.urls import locate_database
from ringback.suggestions import suggest_name
from ringback.upstreams.config import ConfigError, load_upstreams

T = TypeVar("T")

KEY_COLUMNS: Final = (
    "id",
    "principal",
    "name",
    "prefix",
    "scopes",
    "upstreams",
    "created_at",
    "expires_at",
    "replaced_by",
    "revoked_at",
)

app = typer.Typer(no_args_is_help=True, help="Manage API keys and the service's own keys.")

Expires = Annotated[
    str | None,
    typer.Option("--expires", metavar="DURATION", help="When the new key expires, from now: 12h, 90d and so on."),
]


@app.command()
@exit_on_service_errors()
def create(
    principal: Annotated[
        str,
        typer.Argument(
            metavar="PRINCIPAL",
            help="The owner of the key. All keys of a principal see the same calls and share its places at upstreams.",
        ),
    ],
    name: Annotated[str, typer.Option("--name", help="A label for the list of keys.")] = "",
    scope: Annotated[
        list[Scope] | None,
        typer.Option("--scope", help=f"May be repeated. Default: calls, webhooks and read. {SCOPES_TEXT}"),
    ] = None,
    upstream: Annotated[
        list[str] | None,
        typer.Option("--upstream", help="An upstream that the key may use. May be repeated. Default: all."),
    ] = None,
    new_database: Annotated[
        bool,
        typer.Option("--create", help="Also make the database, if there is none. Otherwise `ringback serve` makes it."),
    ] = False,
    expires: Expires = None,
    as_json: AsJson = False,
    database: Database = None,
) -> None:
    """Create a key and print it. It cannot be printed again."""
    settings = load_settings(database_url=database)
    if not new_database:
        _require_database(settings)
    scopes = frozenset(scope) if scope else DEFAULT_SCOPES
    upstreams = frozenset(upstream) if upstream else None
    lifetime = None if expires is None else parse_duration(expires, option="--expires")
    known = _read_upstreams(settings) if upstreams else frozenset[str]()  # first: nothing fails once there is a key
    key, text = _run_with_api_keys(
        settings,
        lambda keys: keys.create_key(
            principal, name=name, scopes=scopes, upstreams=upstreams, lifetime_seconds=lifetime
        ),
    )
    if as_json:
        print_json({**_key_to_json(key), "key": text})
    else:
        print_output(text)
        print_message(
            f"{key.id} of {key.principal}, scopes {', '.join(sorted(key.scopes))}{_describe_expiry(key)}, in the database "
            f"{locate_database(settings.database_url)}. It is not shown again; store it safely."
        )
    _warn_of_unknown_upstreams(upstreams or (), known)


def _require_database(settings: Settings) -> None:
    """Raise `StoreUnavailable` where no service has made a database: a key in a new one would open no service."""
    if asyncio.run(read_schema_state(settings.database_url)).applied == 0:
        raise StoreUnavailable(
            f"There is no database of a service at {locate_database(settings.database_url)}. Name the service's: --database, "
            "or RINGBACK_DATABASE_URL as for the service. `ringback serve` makes it at its first start; to make it here and "
            "now: ringback keys create --create",
            needs_operator=True,
        )


def _require_keys(settings: Settings) -> None:
    """Raise `StoreUnavailable` where the keys would be made here and now: the database's service has others."""
    if lacks_key_file(settings):
        raise StoreUnavailable(
            f"There is no key file '{missing_key_file(settings)}'. If the service has RINGBACK_SECRET_KEYS, set it here, too; "
            "otherwise restore the file; the service makes one at its first start.",
            needs_operator=True,
        )


def _warn_of_unknown_upstreams(names: Iterable[str], known: frozenset[str]) -> None:
    """Print a warning for each name that neither the configuration nor the service's database has.

    It is no error: a key may be made before its upstream is configured, and `serve --upstream` adds upstreams to the file's.
    """
    for name in sorted(frozenset(names) - known):
        if not known:
            print_message(
                f"Warning: no upstream is known here, so the name '{name}' was not checked. Set RINGBACK_CONFIG as for the "
                "service, or compare it with the names in `ringback upstreams`."
            )
            continue
        print_message(
            f"Warning: no upstream is named '{name}'.{suggest_name(name, known)} There is {', '.join(sorted(known))}. "
            f"The key can use '{name}' once an upstream of this name is configured."
        )


def _read_upstreams(settings: Settings) -> frozenset[str]:
    return _configured_upstreams(settings) | asyncio.run(_stored_upstreams(settings))


def _configured_upstreams(settings: Settings) -> frozenset[str]:
    """The names in the configuration file. A file that cannot be read is reported, but does not prevent a key."""
    if settings.config is None:
        return frozenset()
    try:
        return frozenset(entry.name for entry in load_upstreams(settings.config, None).entries)
    except ConfigError as problem:
        print_message(f"Warning: {problem}")
        return frozenset()


async def _stored_upstreams(settings: Settings) -> frozenset[str]:
    """The names of the upstreams that the service has reached, also of those that only `serve --upstream` names."""
    async with open_shared_store(settings) as store:
        return frozenset(part.upstream for part in await store.read(lambda tx: tx.catalog.list_all()))


@app.command("list")
@exit_on_service_errors()
def list_keys(as_json: AsJson = False, database: Database = None) -> None:
    """List all keys by their prefixes."""
    keys = _run_with_api_keys(_load_existing(database), lambda keys: keys.list_keys())
    if as_json:
        print_json([_key_to_json(key) for key in keys])
    elif keys:
        print_table(KEY_COLUMNS, map(_key_to_json, keys))
    else:
        print_message("There is no API key. Create one: ringback keys create PRINCIPAL")


@app.command()
@exit_on_service_errors()
def revoke(
    key_id: Annotated[
        str, typer.Argument(metavar="KEY", help="The key's id, key_…, as `ringback keys list` shows it.")
    ],
    as_json: AsJson = False,
    database: Database = None,
) -> None:
    """Revoke a key. Its next request gets 401."""
    _run_with_api_keys(_load_existing(database), lambda keys: keys.revoke_key(key_id))
    if as_json:
        print_json({"id": key_id, "revoked": True})
    else:
        print_message(f"{key_id} is revoked.")


@app.command("rotate-api-key")
@exit_on_service_errors()
def rotate_api_key(
    key_id: Annotated[
        str, typer.Argument(metavar="KEY", help="The key's id, key_…, as `ringback keys list` shows it.")
    ],
    overlap: Annotated[
        str,
        typer.Option("--overlap", help="How long the old key is accepted too: 30s, 15m, 12h or 7d; 0s ends it now."),
    ] = "1d",
    expires: Expires = None,
    as_json: AsJson = False,
    database: Database = None,
) -> None:
    """Create an API key in the place of another one and print it. The old one expires after the overlap."""
    overlap_seconds = parse_duration(overlap, option="--overlap")
    lifetime = None if expires is None else parse_duration(expires, option="--expires")
    rotated = _run_with_api_keys(
        _load_existing(database),
        lambda keys: keys.rotate_key(key_id, overlap_seconds=overlap_seconds, lifetime_seconds=lifetime),
    )
    ends_at = format_iso(rotated.overlap_ends_at)
    if as_json:
        members = {"key": rotated.text, "replaces": rotated.replaced_id, "overlap_ends_at": ends_at}
        print_json({**_key_to_json(rotated.key), **members})
        return
    print_output(rotated.text)
    print_message(
        f"{rotated.key.id} of {rotated.key.principal}{_describe_expiry(rotated.key)}. It is not shown again; store it safely. "
        f"{key_id} is accepted until {ends_at}."
    )


@app.command()
@exit_on_service_errors()
def rotate(as_json: AsJson = False, database: Database = None) -> None:
    """Add a new key to the key file. After a restart the service encrypts with it, and re-encrypts all stored secrets."""
    settings = load_settings(database_url=database)
    if settings.secret_keys is None:
        _require_database(settings)
    _require_keys(settings)
    key_id = rotate_key_file(settings, random_bytes=os.urandom)
    if as_json:
        print_json({"key": key_id})
    else:
        print_output(key_id)
    print_message("Restart the service. See its progress, and which keys are no longer needed: ringback keys sealed")


@app.command()
@exit_on_service_errors()
def sealed(as_json: AsJson = False, database: Database = None) -> None:
    """Show how many stored values each key encrypted. A key that encrypted none may be removed."""
    settings = _load_existing(database)
    _require_keys(settings)
    ring = load_key_ring(settings, random_bytes=os.urandom)
    counts = asyncio.run(_count_sealed(settings))
    names = [*ring.key_ids_newest_first, *sorted(counts.keys() - ring.keys.keys())]
    rows = [_SealedCount(name, _key_role(name, ring), counts.get(name, 0)) for name in names]
    if as_json:
        print_json([row._asdict() for row in rows])
        return
    table = Table("key", "is", "sealed")
    for row in rows:
        table.add_row(row.key, row.role, str(row.sealed))
    create_console().print(table)
    print_message(
        "An old key with 0 sealed values may be removed once its resume tokens have expired: they live as long as results are "
        "kept. Keep a key that is new and not yet the first in RINGBACK_SECRET_KEYS, which is shown as old, too."
    )


class _SealedCount(NamedTuple):
    key: str
    role: str
    sealed: int


def _key_role(name: str, ring: KeyRing) -> str:
    if name == ring.current_id:
        return "newest"
    return "old" if name in ring.keys else "missing"


async def _count_sealed(settings: Settings) -> Mapping[str, int]:
    async with open_shared_store(settings) as store:
        return await count_sealed_by_key(store)


@app.command("signing")
def generate_signing_key(as_json: AsJson = False) -> None:
    """Generate a key for RINGBACK_SIGNING_KEYS: Ed25519 signatures of callbacks, for receivers without a secret."""
    key = ed25519.generate_signing_key(os.urandom(ed25519.SEED_BYTES))
    public_key = ed25519.parse_signing_key(key).public_key
    if as_json:
        print_json({"key": key, "public_key": public_key})
        return
    print_output(key)
    print_message(f"Receivers verify with its public key: {public_key}")


@app.command("ring")
def generate_ring_key(as_json: AsJson = False) -> None:
    """Generate a key for RINGBACK_SECRET_KEYS: encryption at rest, and resume tokens. Commas separate several keys."""
    key = sealing.generate_key_ring_entry(os.urandom(sealing.KEY_BYTES))
    if as_json:
        print_json({"key": key})
    else:
        print_output(key)


def _run_with_api_keys(settings: Settings, work: Callable[[ApiKeys], Awaitable[T]]) -> T:
    async def run() -> T:
        async with open_api_keys(settings) as keys:
            return await work(keys)

    return asyncio.run(run())


def _load_existing(database: str | None) -> Settings:
    settings = load_settings(database_url=database)
    _require_database(settings)
    return settings


def _key_to_json(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "principal": key.principal,
        "name": key.name,
        "prefix": key.prefix,
        "scopes": sorted(key.scopes),
        "upstreams": None if key.upstreams is None else sorted(key.upstreams),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "replaced_by": key.replaced_by,
        "revoked_at": key.revoked_at,
    }


def _describe_expiry(key: ApiKey) -> str:
    return "" if key.expires_at is None else f", until {format_iso(key.expires_at)}"
