"""What is printed, and how a command ends when something was to be expected to go wrong."""

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
"""Exit code: the call ended in another way than with a result."""
EXIT_NOT_DONE: Final = 2
"""Exit code: it could not be asked. The same as for a usage error."""
TRY_AGAIN: Final = 75
"""Exit code: the service could not start for a reason that may pass by itself. `EX_TEMPFAIL` of sysexits.h."""

NON_TTY_WIDTH: Final = 200
"""Columns of a table that goes into a file or a pipe: wide enough that no id is cut."""


def create_console() -> Console:
    """The console for answers. Made when it is needed, so that it writes to what standard output is by then."""
    return Console(width=None if sys.stdout.isatty() else NON_TTY_WIDTH)


def print_message(message: str) -> None:
    """Say something beside the answer."""
    typer.echo(strip_control_characters(message), err=True)


def print_output(text: str) -> None:
    """Print an answer."""
    typer.echo(strip_control_characters(text))


def print_json(value: Any) -> None:
    print_output(json.dumps(value, ensure_ascii=False, indent=2, default=_json_default))


def exit_with_error(message: str, *, exit_code: int = EXIT_NOT_DONE) -> NoReturn:
    print_message(f"Error: {message}")
    raise typer.Exit(exit_code)


def strip_control_characters(text: str) -> str:
    """The text without control characters: what upstreams and callbacks say must not steer somebody's terminal."""
    return "".join(
        character if character in "\n\t" or unicodedata.category(character) != "Cc" else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )


@contextmanager
def exit_on_errors(
    *expected: type[Exception], exit_code: Callable[[Exception], int] = lambda _: EXIT_NOT_DONE
) -> Generator[None]:
    """Around a command, also as its decorator: the client's errors and these end it with one message, and an exit code."""
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
