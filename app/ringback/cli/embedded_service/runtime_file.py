"""Where the running service is, and what the next one keeps of it. Both files are private: they contain the API key."""

import dataclasses
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from ringback.cli.embedded_service.paths import FILE_MODE, ServicePaths
from ringback.cli.file_locks import is_locked

BYTES_MAX: Final = 64 * 1024
"""The files have a few hundred bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningService:
    url: str
    api_key: str = field(repr=False)
    pid: int
    pid_namespace: str = ""
    """In which the process has this id; empty if the system does not say. A container has one of its own."""

    @property
    def is_in_other_container(self) -> bool:
        """Whether here, another process or none has its id."""
        return self.pid_namespace not in {"", read_pid_namespace()}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSettings:
    """What every start of the service uses again: clients have the key, and listeners' state names the port."""

    api_key: str | None = field(default=None, repr=False)
    port: int = 0


def read_running_service(paths: ServicePaths) -> RunningService | None:
    """The service that runs and listens now; None if there is none. The file of a service that has died is not believed."""
    if not is_locked(paths.lock):
        return None
    match _read_private_object(paths.runtime):
        case {"url": str() as url, "api_key": str() as api_key, "pid": int() as pid, **members}:
            return RunningService(
                url=url, api_key=api_key, pid=pid, pid_namespace=str(members.get("pid_namespace", ""))
            )
        case _:
            return None


def write_running_service(paths: ServicePaths, running: RunningService) -> None:
    _write_private_object(paths.runtime, dataclasses.asdict(running))


def read_pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def remove_runtime_file(paths: ServicePaths) -> None:
    paths.runtime.unlink(missing_ok=True)


def read_kept_settings(paths: ServicePaths) -> KeptSettings:
    match _read_private_object(paths.kept):
        case {"api_key": str() as api_key, "port": int() as port}:
            return KeptSettings(api_key=api_key, port=port)
        case _:
            return KeptSettings()


def write_kept_settings(paths: ServicePaths, kept: KeptSettings) -> None:
    _write_private_object(paths.kept, {"api_key": kept.api_key, "port": kept.port})


def _read_private_object(path: Path) -> Mapping[str, Any]:
    """Empty for a file that is missing, damaged or another user's."""
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                return {}
            value = json.loads(file.read(BYTES_MAX))
    except (OSError, ValueError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _write_private_object(path: Path, value: Mapping[str, Any]) -> None:
    """Replace the file at once: a reader sees the old one or the new one."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with suppress(FileNotFoundError):
        partial.unlink()
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(value, file)
    partial.replace(path)
