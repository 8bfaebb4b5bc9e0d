"""`ringback copy`: moves an installation from SQLite to PostgreSQL."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ringback.cli.output import TRY_AGAIN, AsJson, print_json, print_message
from ringback.cli.server_options import exit_on_service_errors
from ringback.domain.errors import StoreUnavailable
from ringback.keyring import find_key_file
from ringback.storage.schema import driver_missing
from ringback.storage.urls import describe_database, find_sqlite_path, require_sqlite_path

if TYPE_CHECKING:
    from ringback.storage.copying.copier import CopyResult, TableProgress

ROWS_A_LINE: Final = 100_000
"""Some ten seconds of copying."""


@exit_on_service_errors()
def copy(
    *,
    source: Annotated[str, typer.Option("--from", metavar="URL", help="The SQLite database: sqlite:///PATH")],
    target: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="URL",
            help="An empty PostgreSQL database: postgresql://USER@HOST/DATABASE. A password belongs into PGPASSWORD, because "
            "command lines are visible.",
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """Copy an installation from SQLite to PostgreSQL, and compare every row.

    While the service runs, most rows are copied, and the command exits with 75. Stop the service and run the command again: it
    copies what has changed since. Run it again, too, if it was interrupted.
    """
    path = require_sqlite_path(source).resolve()
    if find_sqlite_path(target) is not None:
        raise StoreUnavailable(
            "--to needs a PostgreSQL database: postgresql://user:password@host/database", needs_operator=True
        )
    try:  # imported here, because an installation on SQLite has no driver
        from ringback.storage.copying.copier import copy_database  # noqa: PLC0415 - see above
    except ImportError as error:
        raise driver_missing(error) from error
    result = asyncio.run(copy_database(path, target, report=_ProgressPrinter()))
    if as_json:
        print_json(_to_json(result))
    _print_result(result, path, target, find_key_file(source))
    if not result.is_finished:
        raise typer.Exit(TRY_AGAIN)


class _ProgressPrinter:
    """Prints each table when it is done, and a large one now and then."""

    def __init__(self) -> None:
        self._printed = 0

    def __call__(self, progress: "TableProgress") -> None:
        if progress.is_done:
            removed = f", {progress.removed} removed" if progress.removed else ""
            print_message(f"{progress.table}: {progress.compared} rows compared, {progress.written} written{removed}")
            self._printed = 0
        elif progress.compared >= self._printed + ROWS_A_LINE:
            print_message(f"{progress.table}: {progress.compared} of {progress.total} rows")
            self._printed = progress.compared


def _print_result(result: "CopyResult", path: Path, target: str, key_file: Path | None) -> None:
    if result.replaced_characters:
        print_message(
            f"{result.replaced_characters} characters U+0000, which PostgreSQL cannot store, were replaced by U+FFFD."
        )
    if not result.is_finished:
        print_message("A service has the SQLite database open. Stop it, and run this command again to finish the copy.")
        return
    keys = (
        f"set RINGBACK_SECRET_KEYS to the content of '{key_file}'"
        if key_file is not None and key_file.exists()
        else "keep RINGBACK_SECRET_KEYS"
    )
    end = (
        "A service does not start on the SQLite database any more"
        if result.is_source_marked
        else "Do not start a service on the SQLite database again"
    )
    print_message(
        f"All rows of '{path}' are in {describe_database(target)}. Now set RINGBACK_DATABASE_URL, and {keys}, for every node "
        f"and every command. {end}: both would run the same calls. Viewers of the dashboard sign in anew."
    )


def _to_json(result: "CopyResult") -> dict[str, Any]:
    return {
        "finished": result.is_finished,
        "replaced_characters": result.replaced_characters,
        "tables": {
            each.table: {"compared": each.compared, "written": each.written, "removed": each.removed}
            for each in result.tables
        },
    }
