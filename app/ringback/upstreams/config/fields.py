"""The values of one object of a configuration: of the shapes that occur, expanded, and refused with the place they stand at."""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final, cast

from ringback.upstreams.config.models import ConfigError

SHOWN_NAME_LENGTH_MAX: Final = 64
"""What is shown of a name that somebody else chose."""
_PLACEHOLDER: Final = re.compile(r"\$\{([^}]*)\}")
_VARIABLE_PATTERN: Final = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-(.*))?", re.DOTALL)


class ConfigFields:
    """An object of the file, while it is read. Without an environment nothing is expanded: the shell has done so."""

    def __init__(
        self, settings: Mapping[str, Any], *, where: str, environment: Mapping[str, str] | None, path: str = ""
    ) -> None:
        """`where` names the file and the upstream; `path` leads from there to this object, and ends in a dot."""
        self._settings = settings
        self._source = where
        self._environment = environment
        self._path = path

    def __contains__(self, key: str) -> bool:
        return key in self._settings

    def get_raw(self, key: str) -> Any:
        return self._settings.get(key)

    def quote_path(self, key: str) -> str:
        """A key as an error names it."""
        return f"'{self._path}{key}'"

    def make_error(self, problem: str) -> ConfigError:
        return ConfigError(f"{self._source}: {problem}.")

    def reject_unknown(self, allowed: Collection[str]) -> None:
        """Refuse what is not ours: a setting with a typing error would otherwise do nothing, silently."""
        if unknown := sorted(set(self._settings) - set(allowed)):
            quoted_path = self._path.removesuffix(".")
            raise self.make_error(
                f"'{quoted_path}' has no setting '{unknown[0][:SHOWN_NAME_LENGTH_MAX]}'; there is {', '.join(allowed)}"
            )

    # -- shapes --

    def get_text(self, key: str) -> str:
        value = self.get_raw(key)
        if not isinstance(value, str) or not value.strip():
            raise self.make_error(f"{self.quote_path(key)} must be a text that is not empty")
        return self._expand_placeholders(value, key)

    def get_texts(self, key: str) -> tuple[str, ...]:
        value = self._settings.get(key, [])
        if not isinstance(value, list) or not _are_all_strings(cast("list[Any]", value)):
            raise self.make_error(f"{self.quote_path(key)} must be a list of texts; quote numbers")
        return tuple(self._expand_placeholders(item, key) for item in cast("list[str]", value))

    def get_text_map(self, key: str) -> dict[str, str]:
        value = self._settings.get(key, {})
        if not isinstance(value, dict) or not _are_all_strings(list(cast("dict[str, Any]", value).values())):
            raise self.make_error(f"{self.quote_path(key)} must be an object of texts; quote numbers and true/false")
        return {
            name: self._expand_placeholders(text, f"{key}.{name}")
            for name, text in cast("dict[str, str]", value).items()
        }

    def get_bool(self, key: str, *, default: bool) -> bool:
        value = self._settings.get(key, default)
        if not isinstance(value, bool):
            raise self.make_error(f"{self.quote_path(key)} must be true or false")
        return value

    def get_choice(self, key: str, choices: Collection[str], *, default: str) -> str:
        value = self._settings.get(key, default)
        if not isinstance(value, str) or value not in set(choices):
            raise self.make_error(f"{self.quote_path(key)} must be one of {', '.join(choices)}")
        return value

    def get_int(self, key: str, *, default: int, at_most: int) -> int:
        value = self._settings.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= at_most:
            raise self.make_error(f"{self.quote_path(key)} must be a whole number from 1 to {at_most}")
        return value

    def get_seconds(self, key: str, *, at_most: float) -> float | None:
        value = self.get_raw(key)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= at_most:
            raise self.make_error(f"{self.quote_path(key)} must be a number of seconds from 0 to {at_most:g}")
        return float(value)

    def get_object(self, key: str) -> "ConfigFields":
        """The object at a key; an empty one when there is none."""
        value = self._settings.get(key, {})
        if not isinstance(value, dict):
            raise self.make_error(f"{self.quote_path(key)} must be an object")
        settings = cast("dict[str, Any]", value)
        return ConfigFields(settings, where=self._source, environment=self._environment, path=f"{self._path}{key}.")

    def get_objects(self) -> "dict[str, ConfigFields]":
        """The objects in this one, by name."""
        return {name: self.get_object(name) for name in self._settings}

    # -- placeholders --

    def _expand_placeholders(self, text: str, key: str) -> str:
        if "\0" in text:
            raise self.make_error(f"{self.quote_path(key)} holds a NUL character")
        environment = self._environment
        if environment is None:
            return text
        return _PLACEHOLDER.sub(lambda match: self._expand_placeholder(match[1], key, environment), text)

    def _expand_placeholder(self, placeholder: str, key: str, environment: Mapping[str, str]) -> str:
        quoted_path, shown = self.quote_path(key), placeholder[:SHOWN_NAME_LENGTH_MAX]
        if placeholder.startswith("input:"):
            raise self.make_error(f"{quoted_path} asks for ${{{shown}}}; nobody can be asked, so use ${{ENV_VARIABLE}}")
        if not (match := _VARIABLE_PATTERN.fullmatch(placeholder)):
            raise self.make_error(
                f"{quoted_path} holds ${{{shown}}}; write ${{NAME}}, ${{env:NAME}} or ${{NAME:-default}}"
            )
        name, default = match[1], cast("str | None", match[2])
        value = environment.get(name)
        if default is not None:
            return value or default  # as in a shell: the default also stands in for an empty value
        if value is None:
            raise self.make_error(
                f"{quoted_path} needs the environment variable {name}, which is not set; set it before starting"
            )
        return value


def _are_all_strings(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)
