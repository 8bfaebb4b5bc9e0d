"""Printing, and the exit codes of expected errors."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn, TypeVar, cast

import typer

from ringback.client.problems import ClientError, InvalidArgument
from ringback.protocol.mcp_events.occurrence import format_timestamp

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console
    from rich.table import Table

ModelT = TypeVar("ModelT", bound="BaseModel")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AlwaysJson = Annotated[bool, typer.Option("--json", help="Print JSON, as without this option.", hidden=True)]
"""For commands that print JSON only, so that `--json` is never an error."""

EXIT_NO_RESULT: Final = 1
"""Exit code: the call ended with another outcome than `result`; a tool error is printed, too."""
EXIT_NOT_DONE: Final = 2
"""Exit code: the request failed. The same as for a usage error."""
EXIT_INPUT_REQUIRED: Final = 3
"""Exit code: the call waits for input, which the command does not wait for."""
TRY_AGAIN: Final = 75
"""Exit code: the command may succeed later, or a wait ended before the call. `EX_TEMPFAIL` of sysexits.h."""
EXIT_INTERRUPTED: Final = 130
"""Exit code: Ctrl-C. 128 and the number of SIGINT, as shells report it."""

NON_TTY_WIDTH: Final = 200
"""Columns of a table that is written to a file or a pipe: enough that no id is cut."""


_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters but tab and line end, and those that embed, override or isolate a direction of writing."""
ID_COLUMNS: Final = frozenset({"id", "call_id", "webhook_id"})
COLUMN_WIDTH_MIN: Final = 8
"""Characters of a column that can be read although its cells are longer."""


def create_console() -> Console:
    """A console on the current standard output, which tests replace."""
    from rich.console import Console  # noqa: PLC0415 - most commands print text

    is_terminal = sys.stdout is not None and sys.stdout.isatty()  # it is None if the process was started without it
    return Console(width=None if is_terminal else NON_TTY_WIDTH)


def print_message(message: str) -> None:
    """Print to standard error."""
    typer.echo(strip_control_characters(message), err=True)


def print_output(text: str) -> None:
    """Print to standard output."""
    typer.echo(strip_control_characters(text))


def print_json(value: Any) -> None:
    typer.echo(escape_control_characters(json.dumps(value, ensure_ascii=False, indent=2, default=_json_default)))


def print_json_line(value: Any) -> None:
    """Print JSON on one line, for output without an end."""
    typer.echo(escape_control_characters(json.dumps(value, ensure_ascii=False, default=_json_default)))


def print_model(model: BaseModel) -> None:
    """Print the JSON object of the REST API."""
    print_json(model_to_json(model))


def print_models(models: Iterable[BaseModel]) -> None:
    """Print a JSON array in the form of the REST API."""
    print_json([model_to_json(model) for model in models])


def print_list(
    models: Sequence[ModelT],
    columns: Sequence[str],
    *,
    as_json: bool,
    none: str,
    to_row: Callable[[ModelT], Mapping[str, Any]] | None = None,
) -> None:
    """Print JSON, or a table with a row for each model; without models the message `none`."""
    if as_json:
        print_models(models)
    elif models:
        print_table(columns, map(to_row, models) if to_row else (model.model_dump() for model in models))
    else:
        print_message(none)


def model_to_json(model: BaseModel) -> dict[str, Any]:
    """The members of the REST API's JSON object, for `print_json`."""
    return model.model_dump(by_alias=True)  # times stay as they are: `print_json` writes them as the REST API does


def print_table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Print the members named by the columns; on a terminal that is too narrow for a table, a line for each member.

    An id is never cut or wrapped, so that it can be copied.
    """
    cells = [[strip_control_characters(_format_cell(row.get(name))) for name in columns] for row in rows]
    console = create_console()
    if _measure_table(columns, cells) <= console.width:
        console.print(_make_table(columns, cells))
    else:
        for row in cells:
            _print_members(columns, row)


def _measure_table(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    """The width of the narrowest table that can be read, with a border and two spaces for each column."""
    from rich.cells import cell_len  # noqa: PLC0415 - as for the console

    widths = (max(map(cell_len, column)) for column in zip(columns, *cells, strict=True))
    readable = (
        width if name in ID_COLUMNS else min(width, COLUMN_WIDTH_MIN)
        for name, width in zip(columns, widths, strict=True)
    )
    return 1 + sum(width + 3 for width in readable)


def _make_table(columns: Sequence[str], cells: Iterable[Iterable[str]]) -> Table:
    from rich.table import Table  # noqa: PLC0415 - as for the console
    from rich.text import Text  # noqa: PLC0415 - as for the console

    table = Table()
    for name in columns:
        table.add_column(name, no_wrap=name in ID_COLUMNS, overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def _print_members(columns: Sequence[str], cells: Iterable[str]) -> None:
    """A row as lines `name  value` and an empty line. Further lines of a value are indented: they are no members."""
    width = max(map(len, columns))
    for name, value in zip(columns, cells, strict=True):
        typer.echo(f"{name:<{width}}  " + value.replace("\n", "\n" + " " * (width + 2)))
    typer.echo()


def format_json_time(time: datetime) -> str:
    """As REST writes it. A time without an offset, which another server may send, is taken as UTC."""
    return format_timestamp(time if time.tzinfo is not None else time.replace(tzinfo=UTC))


def format_time_text(time: datetime) -> str:
    """UTC, to the second, as in every table."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _format_cell(value: Any) -> str:
    match value:
        case None | "" | () | []:
            return "-"
        case datetime():
            return format_time_text(value)
        case list() | tuple():
            return ", ".join(str(item) for item in cast("Sequence[Any]", value))
        case _:
            return str(value)


def exit_with_error(message: str, *, exit_code: int = EXIT_NOT_DONE) -> NoReturn:
    from ringback.cli.hints import name_commands  # noqa: PLC0415 - its patterns take milliseconds, and most commands end well

    print_message(f"Error: {name_commands(message)}")
    raise typer.Exit(exit_code)


def strip_control_characters(text: str) -> str:
    """The text without control characters, so that texts of upstreams and callbacks cannot control the terminal.

    Nor can they reorder what stands around them, as U+202E does.
    """
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def escape_control_characters(json_text: str) -> str:
    """The same JSON, in which they are escaped: they cannot control the terminal, and a program reads them unchanged."""
    return _CONTROL.sub(lambda found: json.dumps(found[0])[1:-1], json_text)


@contextmanager
def exit_on_errors(
    *expected: type[Exception], exit_code: Callable[[Exception], int] = lambda _: EXIT_NOT_DONE
) -> Generator[None]:
    """A decorator of commands: the client's errors and the expected ones become one message and an exit code."""
    try:
        yield
    except (ClientError, InvalidArgument, *expected) as error:
        exit_with_error(str(error), exit_code=exit_code(error))
    except OSError as error:
        if error.filename is not None:
            exit_with_error(f"{error.filename}: {error.strerror}.")
        if _is_folder_removed():
            exit_with_error("This folder was removed. Change to another one, and repeat the command.")
        raise


def _is_folder_removed() -> bool:
    """Whether the working folder is gone. Whatever makes a path absolute then fails without a file name."""
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False


def _json_default(value: Any) -> str:
    return format_json_time(value) if isinstance(value, datetime) else str(value)
