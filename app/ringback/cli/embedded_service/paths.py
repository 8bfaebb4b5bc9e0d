"""The files of the service, in the user's folders for configuration and state (XDG Base Directory Specification)."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ringback.cli.home_folder import find_base_folder

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
"""The files contain an API key and what calls return."""
ENVIRONMENT_NAME: Final = "environment"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServicePaths:
    config: Path
    """The mcpServers file. It need not exist."""
    folder: Path

    @property
    def environment(self) -> Path:
        """The variables of the service, beside its configuration. The file need not exist."""
        return self.config.with_name(ENVIRONMENT_NAME)

    @property
    def database(self) -> Path:
        return self.folder / "ringback.db"

    @property
    def lock(self) -> Path:
        return self.folder / "service.lock"

    @property
    def start_lock(self) -> Path:
        return self.folder / "start.lock"

    @property
    def runtime(self) -> Path:
        return self.folder / "service.json"

    @property
    def kept(self) -> Path:
        return self.folder / "kept.json"

    @property
    def log(self) -> Path:
        return self.folder / "service.log"

    def create_folder(self) -> None:
        self.folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)


def find_paths(environment: Mapping[str, str]) -> ServicePaths:
    configuration = find_base_folder(environment, "XDG_CONFIG_HOME", ".config")
    state = find_base_folder(environment, "XDG_STATE_HOME", ".local/state")
    return ServicePaths(config=configuration / "ringback" / "mcp.json", folder=state / "ringback")
