"""`listen --notify`: what a notification says, which program shows it, and that a callback shows one once."""

import json
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ringback.cli.durable_listener.handlers import Failed, Handled, HandlerOutcome, ReceivedCallback
from ringback.cli.durable_listener.notifications import (
    DesktopNotifier,
    Notification,
    NotifyingHandler,
    build_notification,
    choose_program,
)
from ringback.receiver import Callback, parse

DATA = {
    "call_id": "call_01K",
    "status": "completed",
    "outcome": "result",
    "upstream": "reports",
    "tool": "build",
    "correlation_id": "quarter-3",
}


def make_received(*, attempt: int = 1, name: str = "call.finished", **data: Any) -> ReceivedCallback:
    body = json.dumps(
        {"eventId": "evt_1", "name": name, "timestamp": "2026-11-20T17:00:00.000Z", "data": DATA | data}
    ).encode()
    callback = parse(body)
    assert isinstance(callback, Callback)
    return ReceivedCallback(event_id="evt_1", callback=callback, body=body, attempt=attempt)


def build(**data: Any) -> Notification:
    return build_notification(make_received(**data).callback)


@dataclass
class RecordingNotifier:
    shown: list[Notification] = field(default_factory=list[Notification])

    async def show(self, notification: Notification) -> None:
        self.shown.append(notification)


@dataclass
class RecordingHandler:
    outcome: HandlerOutcome
    attempts: list[int] = field(default_factory=list[int])

    async def handle_callback(self, received: ReceivedCallback) -> HandlerOutcome:
        self.attempts.append(received.attempt)
        return self.outcome


def write_program(folder: Path, script: str) -> str:
    program = folder / "notify-send"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def test_a_notification_says_what_happened_to_which_tool_and_what_to_run() -> None:
    assert build() == Notification(
        title="Ringback: reports/build result", body="correlation quarter-3\nRun: ringback join call_01K"
    )


def test_a_question_names_the_command_that_shows_it() -> None:
    shown = build(name="call.input_required", status="input_required", outcome=None)

    assert shown.title == "Ringback: reports/build input required"
    assert "Run: ringback calls show call_01K" in shown.body


def test_a_call_that_waits_for_a_login_names_the_command_that_signs_in() -> None:
    page = "http://127.0.0.1:8090/login/reports"
    waiting: dict[str, Any] = {
        "name": "call.input_required",
        "status": "input_required",
        "outcome": None,
        "login_url": page,
    }

    assert "Run: ringback upstreams login reports" in build(**waiting).body
    assert "Run: ringback calls show call_01K" in build(**waiting, upstream="x; rm -rf ~").body


def test_a_notification_has_no_control_character_and_is_bounded() -> None:
    shown = build(tool="a\x1b[2J\n\N{RIGHT-TO-LEFT OVERRIDE}b", correlation_id="c" * 500, call_id="x; rm -rf ~")

    assert all(each.isprintable() or each == "\n" for each in shown.title + shown.body)
    assert len(shown.title) + len(shown.body) < 300
    assert "rm -rf" not in shown.body


def test_nothing_else_that_an_upstream_wrote_is_shown() -> None:
    shown = build(result={"content": "SECRET"}, error={"message": "SECRET"}, message="SECRET")

    assert "SECRET" not in repr(shown)


@pytest.mark.parametrize(
    ("platform", "found", "program"),
    [
        ("linux", {"notify-send", "powershell.exe"}, "notify-send"),
        ("linux", {"powershell.exe"}, "powershell.exe"),
        ("win32", {"powershell.exe"}, "powershell.exe"),
        ("darwin", {"osascript", "notify-send"}, "osascript"),
        ("darwin", set[str](), None),
        ("linux", set[str](), None),
    ],
)
def test_the_program_of_the_system_is_chosen(platform: str, found: set[str], program: str | None) -> None:
    start = choose_program(build(), find_program=lambda name: name if name in found else None, platform=platform)

    assert (start.arguments[0] if start else None) == program


def test_texts_are_arguments_or_variables_and_never_part_of_a_script() -> None:
    hostile = Notification(title="Ringback: $(reboot)", body='"; do shell script "reboot" <b>&')

    apple = choose_program(hostile, find_program=lambda name: name, platform="darwin")
    windows = choose_program(hostile, find_program=lambda name: name, platform="win32")
    toast = choose_program(
        hostile, find_program=lambda name: name if name == "powershell.exe" else None, platform="win32"
    )

    assert apple is not None
    assert apple.arguments[-2:] == [hostile.title, hostile.body]
    assert windows is not None
    assert windows.arguments[-3:] == ["--", hostile.title, '"; do shell script "reboot" &lt;b&gt;&amp;']
    assert toast is not None
    assert "reboot" not in " ".join(toast.arguments)
    assert toast.variables["RINGBACK_NOTIFICATION_BODY"] == hostile.body


async def test_the_program_gets_the_texts(tmp_path: Path) -> None:
    program = write_program(tmp_path, f"printf '%s|' \"$@\" > {tmp_path / 'shown'}")
    notifier = DesktopNotifier(find_program=lambda _: program, platform="linux", ring=pytest.fail)

    await notifier.show(build())

    shown = (tmp_path / "shown").read_text(encoding="utf-8")
    assert (
        shown
        == "--app-name=Ringback|--|Ringback: reports/build result|correlation quarter-3\nRun: ringback join call_01K|"
    )


@pytest.mark.parametrize("script", ["exit 1", "kill -9 $$"])
async def test_the_terminal_rings_if_the_program_fails(tmp_path: Path, script: str) -> None:
    program, rung = write_program(tmp_path, script), list[bool]()
    await DesktopNotifier(find_program=lambda _: program, platform="linux", ring=lambda: rung.append(True)).show(
        build()
    )

    assert rung == [True]


async def test_the_terminal_rings_if_there_is_no_program() -> None:
    rung = list[bool]()
    await DesktopNotifier(find_program=lambda _: os.devnull, platform="linux", ring=lambda: rung.append(True)).show(
        build()
    )
    await DesktopNotifier(find_program=lambda _: None, platform="linux", ring=lambda: rung.append(True)).show(build())

    assert rung == [True, True]


async def test_a_callback_that_is_tried_again_shows_one_notification() -> None:
    notifier, inner = RecordingNotifier(), RecordingHandler(Failed("no"))
    handler = NotifyingHandler(inner, notifier)

    outcomes = [await handler.handle_callback(make_received(attempt=attempt)) for attempt in (1, 2, 3)]

    assert (len(notifier.shown), inner.attempts) == (1, [1, 2, 3])
    assert outcomes == [Failed("no")] * 3


async def test_the_handlers_outcome_is_passed_on() -> None:
    handler = NotifyingHandler(RecordingHandler(Handled()), RecordingNotifier())

    assert await handler.handle_callback(make_received()) == Handled()
