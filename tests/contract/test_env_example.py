""".env.example lists every variable of Settings with its description and default."""

import json
import re
import textwrap
from pathlib import Path
from typing import cast

import pytest
from pydantic.fields import FieldInfo
from pydantic_core import to_jsonable_python

from ringback.settings import Settings

ENV_EXAMPLE = Path(__file__).parents[2] / ".env.example"
README = Path(__file__).parents[2] / "README.md"
HEADER = """\
# Every setting of Ringback, commented out, with its default. Copy to .env or set in the environment. An empty value is
# none, or the default that the text names. The five settings that a first production start needs are marked: (first start).
"""
FOOTER = """
# Traces and metrics are switched on by the variables of OpenTelemetry, with the extra ringback[otel]:
# OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318
"""
SECTIONS = {
    "database_url": "Database and roles",
    "host": "Addresses of this service",
    "auth": "Sign-in, dashboard and identity provider",
    "secret_keys": "Encryption and signatures",
    "config": "Upstreams",
    "callback_private_cidrs": "Callbacks",
    "connect_patience_seconds": "Waits of calls, clients and the service",
    "result_retention_seconds": "Retention",
    "quota_open_calls": "Quotas and subscriptions",
    "connections_max": "Connections and requests",
    "log_level": "Logs and traces",
}
"""The first setting of each section, and its heading."""
FIRST_START = {"database_url", "public_url", "secret_keys", "config", "trusted_proxies"}
WIDTH = 120


SETTINGS = {name: field for name, field in Settings.model_fields.items() if not field.deprecated}


def test_every_setting_has_a_description() -> None:
    assert [name for name, field in SETTINGS.items() if not field.description] == []


def test_the_sections_and_marks_name_settings() -> None:
    assert SECTIONS.keys() | FIRST_START <= SETTINGS.keys()


def test_env_example_equals_the_settings() -> None:
    expected = HEADER + "".join(_paragraph(name, field) for name, field in SETTINGS.items()) + FOOTER

    actual = ENV_EXAMPLE.read_text(encoding="utf-8") if ENV_EXAMPLE.exists() else ""

    assert actual == expected, f".env.example is to be exactly this:\n{expected}"


def test_the_readmes_table_of_settings_shows_the_same_defaults() -> None:
    rows = re.findall(
        r"^\| `RINGBACK_(\w+)` \| (?:`(\S+)`|[^`|]+) \|", README.read_text(encoding="utf-8"), re.MULTILINE
    )
    shown = {name: default for name, default in rows if "HOST" not in default}

    assert "ON_DISCONNECT" in shown
    assert shown == {name: _default(SETTINGS[name.lower()]) for name in shown}


def test_every_line_may_be_uncommented_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = re.findall(r"^# (RINGBACK_\w+)=(.*)$", ENV_EXAMPLE.read_text(encoding="utf-8"), re.MULTILINE)
    for name, _ in lines:
        monkeypatch.delenv(name, raising=False)
    by_default = Settings()
    for name, value in lines:
        monkeypatch.setenv(name, value)

    assert Settings() == by_default


def _paragraph(name: str, field: FieldInfo) -> str:
    heading = f"\n# ==== {SECTIONS[name]} ====\n" if name in SECTIONS else ""
    text = f"{'(first start) ' if name in FIRST_START else ''}{field.description}"
    explanation = textwrap.fill(text, WIDTH, initial_indent="# ", subsequent_indent="# ")
    return f"{heading}\n{explanation}\n# RINGBACK_{name.upper()}={_default(field)}\n"


def _default(field: FieldInfo) -> str:
    """The default as an environment value; empty if there is none."""
    if field.is_required():
        return ""
    value = to_jsonable_python(field.get_default(call_default_factory=True, validated_data={}))
    match value:
        case None:
            return ""
        case str():
            return value
        case list():
            return ",".join(str(part) for part in cast("list[object]", value))
        case _:
            return json.dumps(value).removesuffix(".0")
