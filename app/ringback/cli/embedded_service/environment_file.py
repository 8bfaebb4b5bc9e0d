r"""The service's own variables: a file of NAME=VALUE lines, in the form of systemd's EnvironmentFile (systemd.exec(5)).

The service has the environment of the client that started it, and clients that come later do not change it. So what the
configuration refers to stands in this file. The file's values replace those of the environment, as systemd's do.

    # a comment, or `; a comment`
    TOKEN=abc                   white space around a value is dropped, and `\` takes the next character as it is
    GREETING="two  words"       `\` takes `"`, `\`, `$` and a backquote as they are
    PEM='-----BEGIN KEY-----    nothing is special between single quotes; both kinds may hold line ends
    …'
"""

import logging
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ringback.upstreams.config import ConfigError
from ringback.upstreams.config.regular_files import open_regular_file

log = logging.getLogger(__name__)

FILE_BYTES_MAX: Final = 128 * 1024
"""Some dozens of secrets. Linux gives a process at most 128 KiB for one variable."""
_IGNORED: Final = re.compile(r"\s+|[#;][^\n]*")
_NAME: Final = re.compile(r"[^\S\n]*([A-Za-z_][A-Za-z0-9_]*)[^\S\n]*=")
_QUOTED: Final = re.compile(r"[^\S\n]*(?:'([^']*)'|\"((?:[^\"\\]|\\.)*)\")", re.DOTALL)
_UNQUOTED: Final = re.compile(r"[^\S\n]*((?:[^\\\s]|\\.|[^\S\n]+(?=\S))*)[^\S\n]*(?=\n|\Z)", re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)
_ESCAPE_IN_QUOTES: Final = re.compile(r"\\([\"\\$`\n])")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentFile:
    """What the file says. Its values are secret."""

    path: Path
    variables: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    ignored_lines: tuple[int, ...] = ()
    """The lines that assign no variable, from 1."""
    is_exposed: bool = False
    """Whether other users may read the file."""

    def log_faults(self) -> None:
        if self.ignored_lines:
            lines = ",".join(map(str, self.ignored_lines))
            log.warning("environment.lines_ignored", extra={"file": str(self.path), "lines": lines})
        if self.is_exposed:
            advice = f"chmod 600 {self.path}"
            log.warning("environment.readable_by_others", extra={"file": str(self.path), "advice": advice})


def read_environment_file(path: Path) -> EnvironmentFile:
    """The file's variables; none if there is no file. Raises `ConfigError` for a file that cannot be read."""
    try:
        with open_regular_file(path) as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(FILE_BYTES_MAX + 1)
            text = content.decode("utf-8-sig")
    except FileNotFoundError:
        return EnvironmentFile(path=path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}). Make it readable for you: chmod 600.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8. Write NAME=VALUE lines.") from None
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(f"{path}: is larger than {FILE_BYTES_MAX} bytes. Write NAME=VALUE lines only.")
    variables, ignored = parse_variables(text)
    is_exposed = bool(mode & (stat.S_IRWXG | stat.S_IRWXO))
    return EnvironmentFile(path=path, variables=variables, ignored_lines=ignored, is_exposed=is_exposed)


def parse_variables(text: str) -> tuple[dict[str, str], tuple[int, ...]]:
    """The variables, and the numbers of the lines that assign none."""
    text = text.replace("\r\n", "\n")
    variables = dict[str, str]()
    ignored = list[int]()
    position = 0
    while position < len(text):
        if skipped := _IGNORED.match(text, position):
            position = skipped.end()
        elif (assignment := _parse_assignment(text, position)) is not None:
            name, variables[name], position = assignment
        else:
            ignored.append(text.count("\n", 0, position) + 1)
            position = _end_of_line(text, position)
    return variables, tuple(ignored)


def _parse_assignment(text: str, position: int) -> tuple[str, str, int] | None:
    """The name, the value and the position after it; None if the line assigns no variable."""
    if (named := _NAME.match(text, position)) is None:
        return None
    position = named.end()
    value = ""
    while quoted := _QUOTED.match(text, position):
        value += quoted[1] if quoted[1] is not None else _ESCAPE_IN_QUOTES.sub(_unescape, quoted[2])
        position = quoted.end()
    unquoted = _UNQUOTED.match(text, position)
    if unquoted is None or unquoted[1].startswith(("'", '"')):
        return None
    value += _ESCAPE.sub(_unescape, unquoted[1])
    return None if "\0" in value else (named[1], value, unquoted.end())


def _unescape(escape: re.Match[str]) -> str:
    """The escaped character; an escaped line end continues the line."""
    return "" if escape[1] == "\n" else escape[1]


def _end_of_line(text: str, position: int) -> int:
    end = text.find("\n", position)
    return len(text) if end < 0 else end
