"""Printing, and the exit codes of expected errors."""

import json
import sys
import unicodedata
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any, Final, NoReturn

import typer
from rich.console import Console

from ringback.client import ClientError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

EXIT_NO_RESULT: Final = 1
"""Exit code: the call ended with another outcome than `result`; a tool error is printed, too."""
EXIT_NOT_DONE: Final = 2
"""Exit code: the request failed. The same as for a usage error."""
TRY_AGAIN: Final = 75
"""Exit code: the service could not start for a temporary reason. `EX_TEMPFAIL` of sysexits.h."""

NON_TTY_WIDTH: Final = 200
"""Columns of a table that is written to a file or a pipe: enough that no id is cut."""


def create_console() -> Console:
    """A console on the current standard output, which tests replace."""
    return Console(width=None if sys.stdout.isatty() else NON_TTY_WIDTH)


def print_message(message: str) -> None:
    """Print to standard error."""
    typer.echo(strip_control_characters(message), err=True)


def print_output(text: str) -> None:
    """Print to standard output."""
    typer.echo(strip_control_characters(text))


def print_json(value: Any) -> None:
    print_output(json.dumps(value, ensure_ascii=False, indent=2, default=_json_default))


def exit_with_error(message: str, *, exit_code: int = EXIT_NOT_DONE) -> NoReturn:
    print_message(f"Error: {message}")
    raise typer.Exit(exit_code)


def strip_control_characters(text: str) -> str:
    """The text without control characters, so that texts of upstreams and callbacks cannot control the terminal."""
    return "".join(
        character if character in "\n\t" or unicodedata.category(character) != "Cc" else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )


@contextmanager
def exit_on_errors(
    *expected: type[Exception], exit_code: Callable[[Exception], int] = lambda _: EXIT_NOT_DONE
) -> Generator[None]:
    """A decorator of commands: the client's errors and the expected ones become one message and an exit code."""
    try:
        yield
    except (ClientError, *expected) as error:
        exit_with_error(str(error), exit_code=exit_code(error))
    except OSError as error:
        if error.filename is None:
            raise
        exit_with_error(f"{error.filename}: {error.strerror}.")


def _json_default(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
