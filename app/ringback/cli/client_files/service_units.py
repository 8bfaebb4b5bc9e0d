"""How the user's own service (`ringback mcp-service`) starts with the session: a unit of systemd, or an agent of launchd.

Without one, `ringback mcp` starts the service when a client needs it, and it stops when it has been idle.
"""

import plistlib
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ringback.cli.client_files.clients import Places
from ringback.cli.embedded_service.paths import ENVIRONMENT_NAME

_NAME: Final = "ringback"
_LABEL: Final = "dev.ringback.service"
IDLE_STOP_SECONDS: Final = 365 * 24 * 3600
"""A year: the service is started with the session, so it does not stop when it is idle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceUnit:
    path: Path
    content: bytes
    start: str
    """The command that starts the service, now and with each session."""


def make_service_unit(command: tuple[str, ...], places: Places) -> ServiceUnit | None:
    """None on a platform that has neither: `describe_task` says what to do there."""
    if places.platform == "linux":
        return _make_systemd_unit(command, places)
    return _make_launchd_agent(command, places) if places.platform == "darwin" else None


def describe_task(command: tuple[str, ...], places: Places) -> str:
    """The words for other platforms."""
    words = (*command, "mcp-service")
    if places.platform != "win32":
        return f"To start it with your session, run there: {shlex.join(words)}"
    program = " ".join(f'\\"{word}\\"' for word in words)
    return f'To start it with your session: schtasks /Create /SC ONLOGON /TN Ringback /TR "{program}"'


def _make_systemd_unit(command: tuple[str, ...], places: Places) -> ServiceUnit:
    folder = places.find_configuration()
    variables = folder / "ringback" / ENVIRONMENT_NAME
    lines = (
        "[Unit]",
        "Description=Ringback, the callback service for MCP",
        "",
        "[Service]",
        f"ExecStart={' '.join(_quote(word) for word in (*command, 'mcp-service'))}",
        "# Programs of servers (npx, uvx) are found as in the shell that wrote this file.",
        f"Environment={_quote('PATH=' + places.environment.get('PATH', ''), expands=False)}",
        f"Environment=RINGBACK_IDLE_STOP_SECONDS={IDLE_STOP_SECONDS}",
        "# NAME=VALUE lines: the variables that the configuration refers to. The service itself reads them, too.",
        f"EnvironmentFile=-{_escape(str(variables))}",
        "# A service that `ringback mcp` has started goes on until it is idle; this one takes over then.",
        "Restart=always",
        "RestartSec=30",
        "KillMode=mixed",
        "TimeoutStopSec=60",
        "",
        "[Install]",
        "WantedBy=default.target",
        "",
    )
    return ServiceUnit(
        path=folder / "systemd" / "user" / f"{_NAME}.service",
        content="\n".join(lines).encode(),
        start=f"systemctl --user daemon-reload && systemctl --user enable --now {_NAME}",
    )


def _quote(word: str, *, expands: bool = True) -> str:
    """A word of a unit (systemd.syntax(7)). ExecStart replaces variables, so `$` is doubled there."""
    escaped = _escape(word.replace("\\", "\\\\").replace('"', '\\"'))
    return f'"{escaped.replace("$", "$$") if expands else escaped}"'


def _escape(text: str) -> str:
    """The text for a systemd unit, in which `%h` and other specifiers would be replaced."""
    return text.replace("%", "%%")


def _make_launchd_agent(command: tuple[str, ...], places: Places) -> ServiceUnit:
    log = places.home / "Library" / "Logs" / "ringback.log"
    agent = {
        "Label": _LABEL,
        "ProgramArguments": [*command, "mcp-service"],
        "EnvironmentVariables": {
            "PATH": places.environment.get("PATH", ""),
            "RINGBACK_IDLE_STOP_SECONDS": str(IDLE_STOP_SECONDS),
        },
        "RunAtLoad": True,
        "KeepAlive": True,
        "ThrottleInterval": 30,
        "StandardErrorPath": str(log),
        "StandardOutPath": str(log),
    }
    path = places.home / "Library" / "LaunchAgents" / f"{_LABEL}.plist"
    return ServiceUnit(
        path=path, content=plistlib.dumps(agent, sort_keys=False), start=f"launchctl bootstrap gui/$(id -u) {path}"
    )
