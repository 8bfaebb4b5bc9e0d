"""`listen --notify`: a desktop notification for each callback, or the terminal's bell where there is no desktop.

A program of the system shows it, and gets the texts as arguments or variables, never through a shell. Of what an
upstream wrote, the texts have only the names of the upstream and the tool, bounded and without control characters.
"""

import asyncio
import html
import os
import re
import shutil
import sys
import unicodedata
from asyncio.subprocess import DEVNULL
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from ringback.cli.durable_listener.handlers import CallbackHandler, HandlerOutcome, ReceivedCallback
from ringback.protocol.upstream_logins import UPSTREAM_NAME_PATTERN, login_command
from ringback.receiver import Callback

PROGRAM_SECONDS_MAX: Final = 5.0
"""Programs that show a notification return within a second; one that waits for its desktop must not delay callbacks."""
VALUE_LENGTH_MAX: Final = 64
"""Characters of a name or an id. Desktops show about two lines."""
BELL: Final = "\a"
_ID: Final = re.compile(r"[A-Za-z0-9_]+")
"""What a user may be advised to paste into a shell."""
_INVISIBLE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Control and format characters, which include those that reverse the direction of a text."""
_TITLE_VARIABLE: Final = "RINGBACK_NOTIFICATION_TITLE"
_BODY_VARIABLE: Final = "RINGBACK_NOTIFICATION_BODY"
_APPLE_SCRIPT: Final = ("on run argv", "display notification (item 2 of argv) with title (item 1 of argv)", "end run")
_TOAST_SCRIPT: Final = f"""
$manager = [Windows.UI.Notifications.ToastNotificationManager, Windows.UI.Notifications, ContentType = WindowsRuntime]
$toast = $manager::GetTemplateContent([Windows.UI.Notifications.ToastTemplateType]::ToastText02)
$texts = $toast.GetElementsByTagName('text')
[void]$texts.Item(0).AppendChild($toast.CreateTextNode($env:{_TITLE_VARIABLE}))
[void]$texts.Item(1).AppendChild($toast.CreateTextNode($env:{_BODY_VARIABLE}))
$sender = '{{1AC14E77-02E7-4E5D-B744-2EB1AE5198B7}}\\WindowsPowerShell\\v1.0\\powershell.exe'
$manager::CreateToastNotifier($sender).Show([Windows.UI.Notifications.ToastNotification]::new($toast))
"""
"""Shows a toast in the name of PowerShell, because Windows shows none of a program that is not installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    title: str
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramStart:
    """How a program is started: its arguments, and variables besides this process's."""

    arguments: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


class Notifier(Protocol):
    async def show(self, notification: Notification) -> None:
        """Show it as well as this machine can. Never raises an error of a program."""
        ...


class NotifyingHandler:
    """Shows a notification with the first attempt of each callback, then calls the handler.

    Attempts are stored, so later ones show none, also after a restart. After a crash during the first one it may show twice.
    """

    def __init__(self, handler: CallbackHandler, notifier: Notifier) -> None:
        self._handler = handler
        self._notifier = notifier

    async def handle_callback(self, received: ReceivedCallback) -> HandlerOutcome:
        if received.attempt == 1:
            await self._notifier.show(build_notification(received.callback))
        return await self._handler.handle_callback(received)


class DesktopNotifier:
    """Starts a program of the system, or rings the terminal if there is none or it fails."""

    def __init__(
        self,
        *,
        find_program: Callable[[str], str | None] = shutil.which,
        platform: str = sys.platform,
        ring: Callable[[], None] | None = None,
    ) -> None:
        self._find_program = find_program
        self._platform = platform
        self._ring = ring or ring_terminal

    async def show(self, notification: Notification) -> None:
        start = choose_program(notification, find_program=self._find_program, platform=self._platform)
        if start is None or not await _run_program(start):
            await asyncio.to_thread(self._ring)


def build_notification(callback: Callback) -> Notification:
    """What happened, to which tool, and what to run."""
    data = callback.data
    call_id = clean_value(callback.call_id)
    tool = "/".join(clean_value(data.get(name)) for name in ("upstream", "tool")) if call_id else ""
    happened = clean_value(callback.outcome or callback.status or callback.name).replace("_", " ")
    body = [f"correlation {value}" for value in [clean_value(callback.correlation_id)] if value]
    if _ID.fullmatch(call_id):
        body.append(f"Run: {_choose_command(callback, call_id)}")
    return Notification(title=f"Ringback: {tool} {happened}".replace("  ", " "), body="\n".join(body) or callback.name)


def _choose_command(callback: Callback, call_id: str) -> str:
    """What takes the call further. `call_id` is safe for a shell."""
    if callback.name == "call.finished":
        return f"ringback join {call_id}"
    upstream = str(callback.data.get("upstream"))
    if callback.data.get("login_url") and UPSTREAM_NAME_PATTERN.fullmatch(upstream):
        return login_command(upstream)
    return f"ringback calls show {call_id}"


def clean_value(value: object) -> str:
    """A value on one line, bounded; empty for what is no text."""
    if not isinstance(value, str):
        return ""
    shown = "".join(" " if unicodedata.category(each) in _INVISIBLE_CATEGORIES else each for each in value)
    return shown if len(shown) <= VALUE_LENGTH_MAX else f"{shown[: VALUE_LENGTH_MAX - 1]}…"


def choose_program(
    notification: Notification, *, find_program: Callable[[str], str | None], platform: str
) -> ProgramStart | None:
    """The program on PATH that shows the notification on this system, with its arguments."""
    if platform == "darwin":
        if (program := find_program("osascript")) is None:
            return None
        script = [part for line in _APPLE_SCRIPT for part in ("-e", line)]
        return ProgramStart(arguments=[program, *script, notification.title, notification.body])
    if (program := find_program("notify-send")) is not None:
        # A body may have markup and escapes, by the Desktop Notifications Specification and by notify-send.
        body = html.escape(notification.body, quote=False).replace("\\", "/")
        return ProgramStart(arguments=[program, "--app-name=Ringback", "--", notification.title, body])
    if (program := find_program("powershell.exe")) is not None:  # Windows, and Linux under Windows
        return ProgramStart(
            arguments=[program, "-NoProfile", "-NonInteractive", "-Command", _TOAST_SCRIPT],
            variables={
                _TITLE_VARIABLE: notification.title,
                _BODY_VARIABLE: notification.body,
                "WSLENV": f"{_TITLE_VARIABLE}:{_BODY_VARIABLE}",
            },
        )
    return None


def ring_terminal() -> None:
    """Ring the bell of the terminal, if standard error is one."""
    if sys.stderr.isatty():
        sys.stderr.write(BELL)
        sys.stderr.flush()


async def _run_program(start: ProgramStart) -> bool:
    """Whether the program succeeded in time."""
    try:
        process = await asyncio.create_subprocess_exec(
            *start.arguments,
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
            env={**os.environ, **start.variables},
            start_new_session=True,  # Ctrl-C reaches the listener only
        )
    except OSError:
        return False
    try:
        async with asyncio.timeout(PROGRAM_SECONDS_MAX):
            return await process.wait() == 0
    except TimeoutError:
        return False
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
