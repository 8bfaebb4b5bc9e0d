"""Reads the settings of a process. An error names the variable and what to do."""

from typing import Any, ClassVar

from pydantic import ValidationError

from ringback.settings.fields import Settings


class SettingsError(Exception):
    """A setting is missing or invalid. The message names it, says what to do, and never contains a secret's value."""

    needs_operator: ClassVar[bool] = True
    """Whether an operator must act, so that a restart does not help."""


def load_settings(**overrides: Any) -> Settings:
    """Settings from the environment and `.env`. Overrides come from the command line; None means not given."""
    try:
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


def _format_error(location: tuple[int | str, ...], message: str) -> str:
    reason = message.removeprefix("Value error, ")
    return f"RINGBACK_{str(location[0]).upper()}: {reason}" if location else reason
