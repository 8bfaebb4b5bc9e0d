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

UNFINISHED: Final = 1
"""Exit code: the call ended in another way than with a result."""
REFUSED: Final = 2
"""Exit code: it could not be asked. The same as for a usage error."""
TRY_AGAIN: Final = 75
"""Exit code: the service could not start for a reason that may pass by itself. `EX_TEMPFAIL` of sysexits.h."""

PIPE_WIDTH: Final = 200
"""Columns of a table that goes into a file or a pipe: wide enough that no id is cut."""


def out() -> Console:
    """The console for answers. Made when it is needed, so that it writes to what standard output is by then."""
    return Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)


def tell(message: str) -> None:
    """Say something beside the answer."""
    typer.echo(printable(message), err=True)


def show(text: str) -> None:
    """Print an answer."""
    typer.echo(printable(text))


def show_json(value: Any) -> None:
    show(json.dumps(value, ensure_ascii=False, indent=2, default=_plain))


def fail(message: str, *, exit_code: int = REFUSED) -> NoReturn:
    tell(f"Error: {message}")
    raise typer.Exit(exit_code)


def printable(text: str) -> str:
    """The text without control characters: what upstreams and callbacks say must not steer somebody's terminal."""
    return "".join(
        character if character in "\n\t" or unicodedata.category(character) != "Cc" else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )


@contextmanager
def reported(
    *expected: type[Exception], exit_code: Callable[[Exception], int] = lambda _: REFUSED
) -> Generator[None]:
    """Around a command, also as its decorator: the client's errors and these end it with one message, and an exit code."""
    try:
        yield
    except (ClientError, *expected) as error:
        fail(str(error), exit_code=exit_code(error))
    except OSError as error:
        if error.filename is None:
            raise
        fail(f"{error.filename}: {error.strerror}.")


def _plain(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
