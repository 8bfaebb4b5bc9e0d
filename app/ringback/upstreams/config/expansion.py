"""`${VARIABLE}` placeholders in the texts of a configuration, and the error that a field of it raises."""

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from pydantic import ValidationInfo
from pydantic_core import PydanticCustomError

from ringback.domain.upstreams import SkipReason

SHOWN_NAME_LENGTH_MAX: Final = 64
"""Characters of a foreign name that an error shows."""
SET_VARIABLE_ADVICE: Final = "set it in the service's environment before starting: .env gives only RINGBACK_ settings"
"""What to do about a missing variable. A service that reads a file of variables gives other advice."""
FIELD_ERROR: Final = "config_field"
"""The pydantic type of the errors made here. Errors of other types have pydantic's own words."""
_PLACEHOLDER: Final = re.compile(r"\$\{([^}]*)\}")
_VARIABLE_PATTERN: Final = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


def make_field_error(problem: str, reason: SkipReason = SkipReason.INVALID_ENTRY) -> PydanticCustomError:
    """An error that continues the quoted path of its field: `must be true or false`."""
    return PydanticCustomError(FIELD_ERROR, "{problem}", {"problem": problem, "reason": reason})


def expand_placeholders(text: str, info: ValidationInfo) -> str:
    """Replace placeholders by variables of the environment, which is the validation context.

    Without an environment the text stays as it is: a shell has expanded it.
    """
    if "\0" in text:
        raise make_field_error("holds a NUL character")
    environment = cast("Mapping[str, str] | None", cast("Any", info.context))
    if environment is None:
        return text
    # After the last brace, each `${` would be searched to the end of the text.
    closed, brace, rest = text.rpartition("}")
    return _PLACEHOLDER.sub(lambda match: _expand_placeholder(match[1], environment), closed + brace) + rest


def _expand_placeholder(placeholder: str, environment: Mapping[str, str]) -> str:
    shown = placeholder[:SHOWN_NAME_LENGTH_MAX]
    if placeholder.startswith("input:"):
        raise make_field_error(f"holds ${{{shown}}}, but a service cannot prompt a user; use ${{ENV_VARIABLE}}")
    if not (match := _VARIABLE_PATTERN.fullmatch(placeholder)):
        raise make_field_error(f"holds ${{{shown}}}; write ${{NAME}}, ${{env:NAME}} or ${{NAME:-default}}")
    name, default = match[1], cast("str | None", match[2])
    value = environment.get(name)
    if default is not None:
        return value or default  # as in a shell, the default also replaces an empty value
    if value is None:
        raise make_field_error(
            f"needs the environment variable {name}, which is not set; {SET_VARIABLE_ADVICE}",
            SkipReason.MISSING_VARIABLE,
        )
    return value
