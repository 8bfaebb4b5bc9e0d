"""Output that cannot be written ends a command with one message: a full disk, a quota, a file that is too large.

A closed pipe ends it without a message, with exit code 1: typer does that. Characters that the encoding of the output lacks
are written as JSON's escapes.
"""

import codecs
import errno
import io
import json
import os
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TextIO, cast

EXIT_NOT_WRITTEN: Final = 74
"""Exit code: the command may have done its work, but its output is incomplete. `EX_IOERR` of sysexits.h."""
_ESCAPES: Final = "ringback.json_escapes"
"""The name of the error handler for `codecs`."""
_WRITE_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


@contextmanager
def exit_on_write_errors() -> Generator[None]:
    """Around every command. Output is also written when the command exits: there, too, an error becomes the message."""
    _escape_unencodable(sys.stdout)
    try:
        try:
            yield
        except SystemExit:
            _flush(sys.stdout)
            raise
    except (OSError, ExceptionGroup) as error:
        if not all(map(_is_write_error, _list_causes(error))):
            raise
        _discard(sys.stdout)
        _print_error(f"Error: The output cannot be written: {_describe(next(_list_causes(error)))}.")
        raise SystemExit(EXIT_NOT_WRITTEN) from None


def _escape_unencodable(stream: TextIO | None) -> None:
    """A pipe of Windows has some 250 characters. JSON stays valid, and a call that was started keeps its id on the screen."""
    if isinstance(stream, io.TextIOWrapper):
        codecs.register_error(_ESCAPES, _escape_as_json)
        with suppress(OSError):  # it flushes, which fails for a stream whose descriptor was replaced
            stream.reconfigure(errors=_ESCAPES)


def _escape_as_json(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def _list_causes(error: Exception) -> Iterator[Exception]:
    """The exceptions of a group, or the exception itself."""
    if isinstance(error, ExceptionGroup):
        for part in cast("ExceptionGroup[Exception]", error).exceptions:
            yield from _list_causes(part)
    else:
        yield error


def _is_write_error(error: Exception) -> bool:
    """Errors of files that a command opens by name have a file name."""
    return isinstance(error, OSError) and error.errno in _WRITE_ERRORS and error.filename is None


def _describe(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _flush(stream: TextIO | None) -> None:
    if stream is not None:  # it is None if the process was started without it
        stream.flush()


def _print_error(message: str) -> None:
    try:
        if sys.stderr is not None:
            sys.stderr.write(f"{message}\n")
            sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)


def _discard(stream: TextIO | None) -> None:
    """Let what the stream still holds go nowhere: Python writes it once more at exit, and would print a traceback."""
    if stream is not None:
        with suppress(OSError), Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())
