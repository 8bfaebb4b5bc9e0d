"""`ringback migrate`: brings the database to this version's schema, or says what that would take."""

import asyncio
from typing import Annotated

import typer

from ringback.cli.output import EXIT_NO_RESULT, AsJson, print_json, print_output
from ringback.cli.server_options import Database, exit_on_service_errors
from ringback.service_database import migrate_database
from ringback.settings import load_settings
from ringback.storage.migrations import SchemaState
from ringback.storage.schema import read_schema_state


@exit_on_service_errors()
def migrate(
    *,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Change nothing. Exits with 1 if migrations are missing, with 75 if the database is away."
        ),
    ] = False,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """Bring the database to this version's schema, or check whether it is. `ringback serve` migrates at its start, too."""
    settings = load_settings(database_url=database)
    state = asyncio.run(read_schema_state(settings.database_url) if check else migrate_database(settings))
    if as_json:
        print_json(_to_json(state, migrated=not check))
    else:
        print_output(_describe_missing(state) if check else _describe_done(state))
    if check and state.missing:
        raise typer.Exit(EXIT_NO_RESULT)


def _to_json(state: SchemaState, *, migrated: bool) -> dict[str, object]:
    numbers = [migration.number for migration in state.missing]
    return {
        "applied": max([state.applied, *numbers]) if migrated else state.applied,
        "known": state.known,
        "migrated" if migrated else "missing": numbers,
        "oldest_code": state.oldest_code,
    }


def _describe_done(state: SchemaState) -> str:
    if not state.missing:
        return _describe_complete(state)
    return f"Applied {_name_missing(state)}. The database is at migration {state.known}."


def _describe_missing(state: SchemaState) -> str:
    if not state.missing:
        return _describe_complete(state)
    nodes = (
        "The database is new."
        if state.applied == 0
        else f"Nodes of a version that knows migration {state.oldest_code} may run meanwhile; stop older ones first."
    )
    return f"The database lacks {_name_missing(state)}. Apply with: ringback migrate. {nodes}"


def _describe_complete(state: SchemaState) -> str:
    if state.applied > state.known:
        return f"The database is at migration {state.applied}. This version knows {state.known}, and may run on it."
    return f"The database is at migration {state.applied}, the last of this version."


def _name_missing(state: SchemaState) -> str:
    first, last = state.missing[0].number, state.missing[-1].number
    return f"migration {first}" if first == last else f"migrations {first} to {last}"
