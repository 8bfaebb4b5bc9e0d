"""What each connection changed, kept on disk until it is undone. A record may hold secrets, and only its user may read it."""

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, cast

from ringback.cli.client_files.safe_files import HISTORY_BYTES_MAX, FileRefused, create_file, read_file, replace_file

_FOLDER: Final = "connections"
_VERSION: Final = 1
RECORD_BYTES_MAX: Final = 8 * HISTORY_BYTES_MAX
"""A record has the texts of two files, in which JSON escapes characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedServer:
    path: tuple[str, ...]
    upstream: str
    before: Mapping[str, Any] = field(repr=False)
    after: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionRecord:
    """One change of a client's file and of Ringback's configuration."""

    client: str
    file: str
    before: str = field(repr=False)
    """The whole text of the client's file."""
    after_sha256: str
    servers: tuple[ChangedServer, ...]
    config: str
    config_before: str | None = field(repr=False)
    """None if the configuration did not exist."""
    config_after_sha256: str
    added: Mapping[str, Any] = field(repr=False)
    """The entries that the configuration did not have, by name."""
    api_key_sha256: str = ""
    """Of the key for the service at the URL of `--url`. An undo sends that service no other key; empty: none."""


def hash_content(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def hash_api_key(api_key: str | None) -> str:
    """A key is random and long, so its hash reveals nothing. Empty without a key."""
    return hash_content(os.fsencode(api_key)) if api_key else ""


class RecordFolder:
    """The records of all clients, in the folder of the user's state."""

    def __init__(self, state_folder: Path) -> None:
        self._folder = state_folder / _FOLDER

    def add(self, record: ConnectionRecord) -> Path:
        """Store the record as the newest of its file."""
        key = self._make_key(record.client, Path(record.file))
        number = 1 + max(map(int, self._list_numbers(key)), default=0)
        path = self._folder / f"{key}-{number:04}.json"
        create_file(path, _dump(record))
        return path

    def _list_numbers(self, key: str) -> Iterable[str]:
        """A person may have copied a record, for example to `…-0001 copy.json`."""
        numbers = (path.stem.rpartition("-")[2] for path in self._folder.glob(f"{key}-*.json"))
        return (number for number in numbers if number.isdecimal())

    def list_of_file(self, client: str, file: Path) -> Sequence[Path]:
        """The records of a client's file, newest first."""
        return sorted(self._folder.glob(f"{self._make_key(client, file)}-*.json"), reverse=True)

    def list_others(self, path: Path) -> list[Path]:
        return [each for each in sorted(self._folder.glob("*.json")) if each != path]

    def read(self, path: Path) -> ConnectionRecord:
        """Raises `FileRefused`, also for a file that is no record."""
        found = read_file(path, bytes_max=RECORD_BYTES_MAX)
        try:
            return _load({} if found is None else json.loads(found.content))
        except (ValueError, TypeError, KeyError):
            raise FileRefused(
                f"{path}: is no record of this version of Ringback. Take the change back with the version that wrote it, or by "
                "hand, and remove the record."
            ) from None

    def add_entries(self, path: Path, entries: Mapping[str, Any]) -> None:
        """Entries of the configuration that another connection added, and that this one uses, become this one's.

        They are in the earlier text of this one, too, so an undo takes entries out and does not restore that text.
        """
        found = read_file(path, bytes_max=RECORD_BYTES_MAX)
        if found is not None:
            record = self.read(path)
            replace_file(found, _dump(replace(record, added={**entries, **record.added}, config_after_sha256="")))

    def keep_servers(self, path: Path, upstreams: Collection[str]) -> None:
        """Let the record be that of these servers only: the others were undone."""
        found = read_file(path, bytes_max=RECORD_BYTES_MAX)
        if found is None:
            return
        record = self.read(path)
        kept = replace(
            record,
            servers=tuple(each for each in record.servers if each.upstream in upstreams),
            added={name: entry for name, entry in record.added.items() if name in upstreams},
            after_sha256="",
            config_after_sha256="",
        )
        replace_file(found, _dump(kept))

    def _make_key(self, client: str, file: Path) -> str:
        return f"{client}-{hash_content(os.fsencode(file))[:12]}"


def _dump(record: ConnectionRecord) -> bytes:
    return json.dumps({"version": _VERSION, **asdict(record)}).encode()


def _load(stored: Any) -> ConnectionRecord:
    if not isinstance(stored, dict) or cast("dict[str, Any]", stored).pop("version", None) != _VERSION:
        raise ValueError("it is no record of this version")
    fields = cast("dict[str, Any]", stored)
    stored_servers = cast("list[dict[str, Any]]", fields.pop("servers"))
    servers = tuple(ChangedServer(path=tuple(each.pop("path")), **each) for each in stored_servers)
    return ConnectionRecord(servers=servers, **fields)
