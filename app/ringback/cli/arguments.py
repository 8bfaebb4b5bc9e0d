"""Parses `--arg name=value` into a tool's arguments, objects, headers and times, and `list` after a command that lists itself.

A valid JSON value is parsed, any other value is a string: `--arg count=3` is a number, `--arg path=.` a string. If the tool's
inputSchema requires a string, the value stays one: `--arg message=3` is then "3". `null` is null where the schema also admits
null, and `"null"` with its quotes is then the string.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NoReturn, cast

import typer
from typer.core import TyperGroup

TIME_FORMATS: Final = ["%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d"]
"""ISO 8601. A day is its first moment."""
TIME_METAVAR: Final = "YYYY-MM-DD[THH:MM[:SS[+HH:MM]]]"
"""The same for people."""

_DURATION: Final = re.compile(r"([0-9]{1,6})([smhd])")
_SECONDS_BY_UNIT: Final[Mapping[str, float]] = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class ListingGroup(TyperGroup):
    """A command that lists by itself and has subcommands: `ringback calls list` means `ringback calls`, as with webhooks."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args[1:] if args[:1] == ["list"] else args)


def time_option(name: str, help_text: str) -> Any:
    return typer.Option(name, parser=parse_time, metavar=TIME_METAVAR, help=help_text)


def parse_time(text: str) -> datetime:
    for time_format in TIME_FORMATS:
        try:
            return datetime.strptime(text, time_format)  # noqa: DTZ007 - `with_offset` adds the offset
        except ValueError:
            continue
    raise typer.BadParameter(f"write a time as {TIME_METAVAR}, such as 2026-11-20T17:00 or 2026-11-20T17:00:00Z")


def with_offset(time: datetime | None) -> datetime | None:
    """The time with a UTC offset: without one it is a time of this machine."""
    if time is None or time.tzinfo is not None:
        return time
    try:
        return time.astimezone()
    except (ValueError, OverflowError):  # at an end of the calendar
        return time.replace(tzinfo=UTC)


def format_time(time: datetime | None) -> str | None:
    """The time in ISO 8601 with a UTC offset."""
    time = with_offset(time)
    return None if time is None else time.isoformat()


def require_http_url(url: str, *, option: str, example: str) -> None:
    """Refuse what is not a whole URL of http or https."""
    import httpx  # noqa: PLC0415 - commands on the database parse arguments, too, and send no request

    try:
        parsed = httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError):
        parsed = httpx.URL()
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise typer.BadParameter(f"give the whole URL, such as {example}", param_hint=option)


def require_finite(number: float | None) -> float | None:
    """A callback of options: JSON has no infinity and no NaN, which typer reads as numbers."""
    if number is not None and not math.isfinite(number):
        raise typer.BadParameter("write a finite number")
    return number


def parse_duration(text: str, *, option: str) -> float:
    """The seconds of `90s`, `15m`, `12h` or `30d`."""
    found = _DURATION.fullmatch(text)
    if found is None:
        raise typer.BadParameter("write a duration as 90s, 15m, 12h or 30d", param_hint=option)
    return float(found[1]) * _SECONDS_BY_UNIT[found[2]]


def parse_arguments(
    pairs: Sequence[str],
    *,
    json_arguments: str | None,
    input_schema: Mapping[str, Any] | None,
    pairs_hint: str = "--arg",
    json_hint: str = "--json-args",
) -> dict[str, Any]:
    """The arguments. Those in `pairs` override those in `json_arguments`. The hints are the names of the two options."""
    arguments = {} if json_arguments is None else parse_object(json_arguments, option=json_hint)
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator or not name:
            raise typer.BadParameter("write it as NAME=VALUE", param_hint=pairs_hint)
        arguments[name] = _parse_value(text, _find_property(input_schema or {}, name))
    return arguments


def parse_object(text: str, *, option: str) -> dict[str, Any]:
    """The JSON object that the option has."""
    try:
        value = _load_json(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise typer.BadParameter("""it must be a JSON object, such as '{"name": "value"}'""", param_hint=option)
    return cast("dict[str, Any]", value)


def read_object(text: str, *, option: str) -> dict[str, Any]:
    """The JSON object that the option has, or that the file has which it names as @FILE."""
    if text.startswith("@"):
        try:
            text = Path(text[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            reason = (isinstance(problem, OSError) and problem.strerror) or "it is no text in UTF-8"
            raise typer.BadParameter(f"{text[1:]} cannot be read: {reason}", param_hint=option) from None
    return parse_object(text, option=option)


def parse_headers(lines: Sequence[str], *, option: str = "--header") -> dict[str, str]:
    """The headers of `NAME: VALUE` lines, by their names as they are written."""
    headers: dict[str, str] = {}
    for line in lines:
        name, separator, value = line.partition(":")
        if not separator or not name.strip():
            raise typer.BadParameter("a header is `Name: value`", param_hint=option)
        if name.strip().lower() in map(str.lower, headers):
            raise typer.BadParameter(f"the header {name.strip()} is given twice", param_hint=option)
        headers[name.strip()] = value.strip()
    return headers


def _parse_value(text: str, schema: Any) -> Any:
    """The value for a property of this schema. A string that is spelled as null has JSON's quotes if null is admitted, too."""
    if not _is_string_schema(schema) or (text in {"null", '"null"'} and _admits_null(schema)):
        return _parse_json_or_text(text)
    return text


def _parse_json_or_text(text: str) -> Any:
    try:
        return _load_json(text)
    except ValueError:
        return text


def _load_json(text: str) -> Any:
    try:
        return json.loads(
            text, parse_constant=_reject_constant, parse_float=_parse_finite, object_pairs_hook=_build_object
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _build_object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Python's parser drops all but the last member of a name. The service refuses such an object."""
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise typer.BadParameter(f"the JSON has the member '{name}' twice")
        members[name] = value
    return members


def _parse_finite(text: str) -> float:
    """Python's parser makes infinity of 1e999, which no request can have."""
    number = float(text)
    if math.isinf(number):
        raise ValueError(text)
    return number


def _reject_constant(name: str) -> NoReturn:
    """Python's parser accepts NaN and Infinity, which are not JSON."""
    raise ValueError(name)


def _find_property(input_schema: Mapping[str, Any], name: str) -> Any:
    match input_schema.get("properties"):
        case {**properties}:
            return cast("dict[str, Any]", properties).get(name)
        case _:
            return None


def _is_string_schema(schema: Any) -> bool:
    """Whether a property's schema accepts only strings and null."""
    match schema:
        case {"type": "string"}:
            return True
        case {"type": [*types]}:
            return "string" in types and all(type_ in ("string", "null") for type_ in types)
        case {"anyOf": [*alternatives]} | {"oneOf": [*alternatives]}:
            texts = [alternative for alternative in alternatives if not _is_null_schema(alternative)]
            return bool(texts) and all(_is_string_schema(alternative) for alternative in texts)
        case _:
            return False


def _admits_null(schema: Any) -> bool:
    """Whether null is one of the values of a schema for which `_is_string_schema` is true."""
    match schema:
        case {"nullable": True} | {"type": "null"}:
            return True
        case {"type": [*types]}:
            return "null" in types
        case {"anyOf": [*alternatives]} | {"oneOf": [*alternatives]}:
            return any(map(_admits_null, alternatives))
        case _:
            return False


def _is_null_schema(schema: Any) -> bool:
    match schema:
        case {"type": "null"}:
            return True
        case _:
            return False
