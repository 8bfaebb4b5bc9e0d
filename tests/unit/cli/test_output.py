"""Output to a terminal."""

import json
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import typer
from rich.console import Console

from ringback.cli import output
from ringback.cli.output import (
    exit_on_errors,
    format_time_text,
    print_json,
    print_json_line,
    print_model,
    print_table,
    strip_control_characters,
)
from ringback.cli.server_options import exit_on_service_errors
from ringback.client import ConnectionFailed, PortalLink
from ringback.domain.errors import InvalidRequest
from ringback.schemas import administration_examples
from ringback.settings import SettingsError


def test_text_from_outside_cannot_steer_a_terminal() -> None:
    assert strip_control_characters("\x1b[2Jred\x07 \x9b31m\r") == "�[2Jred� �31m�"


def test_text_from_outside_cannot_reorder_what_stands_around_it() -> None:
    assert strip_control_characters("delete\u202etxt.\u2066a\u2069") == "delete�txt.�a�"


def test_a_table_of_a_process_without_standard_output_goes_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)

    print_table(("id",), [{"id": "call_1"}])


DELIVERY = {
    "id": "dlv_01JD2VX0000000000000000000",
    "webhook_id": "wh_01JD2VX0000000000000000000",
    "call_id": "call_01JD2VX0000000000000000000",
    "state": "dead",
    "last_category": "http_5xx",
    "detail": "first line\nsecond line",
}


def print_deliveries(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setattr(output, "create_console", lambda: Console(width=width))
    print_table(tuple(DELIVERY), [DELIVERY, DELIVERY])


def test_a_terminal_that_is_too_narrow_for_a_table_shows_each_member_on_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    print_deliveries(monkeypatch, width=80)

    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "id             dlv_01JD2VX0000000000000000000",
        "webhook_id     wh_01JD2VX0000000000000000000",
        "call_id        call_01JD2VX0000000000000000000",
        "state          dead",
    ]
    assert lines[4:8] == ["last_category  http_5xx", "detail         first line", "               second line", ""]
    assert len(lines) == 16


def test_the_narrowest_table_shows_whole_ids_and_every_column(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = sum(len(DELIVERY[name]) + 3 for name in ("id", "webhook_id", "call_id"))
    print_deliveries(monkeypatch, width=1 + ids + len("state") + 3 + 2 * (output.COLUMN_WIDTH_MIN + 3))

    shown = capsys.readouterr().out
    assert all(DELIVERY[name] in shown for name in ("id", "webhook_id", "call_id", "state", "last_category"))
    assert "state" in shown.splitlines()[2]


def test_json_has_every_character_and_none_that_steers_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"text": "\x7f\x85\x9b2J \u202etxt.\u2066a\u2069 שלום\n"}

    for print_value in (print_json, print_json_line):
        print_value(value)
        printed = capsys.readouterr().out
        assert json.loads(printed) == value
        assert strip_control_characters(printed) == printed
        assert "שלום" in printed


def test_text_keeps_its_lines_and_its_scripts() -> None:
    text = "one\n\ttwo · naïve 日本 שלום\N{RIGHT-TO-LEFT MARK} 👩‍🔬\N{NO-BREAK SPACE}!"

    assert strip_control_characters(text) == text


@pytest.mark.parametrize("error", [ConnectionFailed("Do this."), InvalidRequest("Do this."), SettingsError("Do this.")])
def test_an_error_that_is_to_be_expected_is_one_message(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended, exit_on_service_errors():
        raise error

    assert ended.value.exit_code == 2
    assert capsys.readouterr() == ("", "Error: Do this.\n")


def test_a_file_that_cannot_be_had_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit), exit_on_errors():
        (tmp_path / "missing" / "file").read_bytes()

    assert capsys.readouterr().err == f"Error: {tmp_path / 'missing' / 'file'}: No such file or directory.\n"


def test_a_command_in_a_folder_that_was_removed_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    with pytest.raises(typer.Exit) as ended, exit_on_errors():
        Path("ringback.db").absolute()

    assert ended.value.exit_code == 2
    assert capsys.readouterr().err == "Error: This folder was removed. Change to another one, and repeat the command.\n"


def test_times_are_printed_as_rest_writes_them_in_json_and_as_tables_do_in_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    link = PortalLink.model_validate(administration_examples.PORTAL_LINK)

    print_model(link)

    assert json.loads(capsys.readouterr().out) == administration_examples.PORTAL_LINK
    assert (
        format_time_text(datetime(2026, 11, 24, 3, 16, 13, 339, timezone(timedelta(hours=2)))) == "2026-11-24 01:16:13"
    )


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError), exit_on_errors():
        raise ZeroDivisionError
