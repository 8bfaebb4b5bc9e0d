"""Reads the settings of a process. An error names the variable and what to do."""

import difflib
import logging
import os
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final

from dotenv import dotenv_values
from pydantic import ValidationError

from ringback.settings.fields import Settings

ENV_FILE: Final = ".env"
RESEMBLANCE_MIN: Final = 0.88
"""A letter or two of a setting's name. Variables of commands, and of an operator's own configuration, resemble none so much."""


class SettingsError(Exception):
    """A setting is missing or invalid. The message names it, says what to do, and never contains a secret's value."""

    needs_operator: ClassVar[bool] = True
    """Whether an operator must act, so that a restart does not help."""


def load_settings(**overrides: Any) -> Settings:
    """Settings from the environment and `.env`. Overrides come from the command line; None means not given."""
    try:
        with _named_env_file():
            return Settings(**{name: value for name, value in overrides.items() if value is not None})
    except ValidationError as problem:
        raise SettingsError(
            "\n".join(_format_error(error["loc"], error["msg"]) for error in problem.errors())
        ) from None
    except UnicodeDecodeError:
        raise SettingsError(".env is not a text file in UTF-8. Save it as one.") from None
    except OSError as problem:
        raise SettingsError(
            f".env cannot be read: {problem.strerror}. Run this as the service's user, or in a folder without that file."
        ) from None


def find_misspelt_variables() -> Mapping[str, str]:
    """Variables of the environment and of `.env` that are no settings, each with the setting whose name it almost has.

    An unknown variable is no error: a configuration may refer to variables with any name.
    """
    settings = [f"RINGBACK_{name.upper()}" for name in Settings.model_fields]
    given = sorted(name for name in {*os.environ, *_read_env_file()} if name.startswith("RINGBACK_"))
    found = {name: difflib.get_close_matches(name, settings, n=1, cutoff=RESEMBLANCE_MIN) for name in given}
    return {name: close[0] for name, close in found.items() if close and name not in settings}


def _read_env_file() -> Mapping[str, str | None]:
    """Without warnings: `load_settings` has given them."""
    with _filtered_warnings(lambda _: False):
        return dotenv_values(ENV_FILE)


@contextmanager
def _named_env_file() -> Generator[None]:
    """Warn of a bad line with the name of the file, which python-dotenv leaves out."""

    def name_file(record: logging.LogRecord) -> bool:
        line = f"line {record.args[0]}" if isinstance(record.args, tuple) and record.args else "a line"
        record.msg, record.args = f"{Path(ENV_FILE).absolute()}: {line} is no NAME=VALUE, and is ignored.", ()
        return True

    with _filtered_warnings(name_file):
        yield


@contextmanager
def _filtered_warnings(check: Callable[[logging.LogRecord], bool]) -> Generator[None]:
    logger = logging.getLogger("dotenv.main")
    logger.addFilter(check)
    try:
        yield
    finally:
        logger.removeFilter(check)


def _format_error(location: tuple[int | str, ...], message: str) -> str:
    reason = message.removeprefix("Value error, ")
    return f"RINGBACK_{str(location[0]).upper()}: {reason}" if location else reason
