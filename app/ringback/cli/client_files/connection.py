"""Writes a planned connection, and undoes it.

    record ──▶ Ringback's configuration ──▶ the client's file        undo: the client's file ──▶ configuration ──▶ record

Each file is replaced at once. A process that ends between two steps leaves the client's file as it was, with servers in the
configuration that no client uses yet: repeating the command completes the connection, and `--undo` takes it back.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ringback.cli.client_files.clients import Client
from ringback.cli.client_files.configuration import Configuration
from ringback.cli.client_files.documents import Document, Replacement
from ringback.cli.client_files.entries import MOVED_KEYS
from ringback.cli.client_files.own_entries import URL_KEYS, find_own_upstream
from ringback.cli.client_files.plan import Plan, list_servers, parse_document
from ringback.cli.client_files.records import ChangedServer, ConnectionRecord, RecordFolder, hash_api_key, hash_content
from ringback.cli.client_files.safe_files import (
    HISTORY_BYTES_MAX,
    FileRefused,
    ReadFile,
    commit_replacement,
    create_file,
    read_file,
    remove_file,
    replace_file,
    staging_replacement,
)
from ringback.cli.client_files.text_edits import UnreadableDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoReport:
    """What an undo left as it is, in words, and whether the client's file has the earlier bytes."""

    is_exact: bool
    left: tuple[str, ...] = ()
    used: frozenset[str] = frozenset()
    """The upstreams of entries that stay. They stay in the configuration, and the record keeps their settings."""


def write_connection(
    plan: Plan,
    *,
    client: Client,
    client_file: ReadFile,
    document: Document,
    config_path: Path,
    config_file: ReadFile | None,
    records: RecordFolder,
    api_key: str | None = None,
) -> None:
    """Raises `FileRefused`; then nothing was changed."""
    record = _make_record(plan, client, client_file, document, config_path, config_file, api_key)
    stored = records.add(record)
    try:
        with staging_replacement(client_file, plan.client_text.encode()) as staged:  # before anything changes
            _write_config(config_path, config_file, plan.config_text.encode())
            commit_replacement(staged)
    except BaseException:
        with contextlib.suppress(Exception):
            undo_connection(stored, client=client, records=records)
        raise


def _make_record(
    plan: Plan,
    client: Client,
    client_file: ReadFile,
    document: Document,
    config_path: Path,
    config_file: ReadFile | None,
    api_key: str | None,
) -> ConnectionRecord:
    after = parse_document(plan.client_text, client)
    return ConnectionRecord(
        client=client.name,
        file=str(client_file.path),
        before=client_file.text,
        after_sha256=hash_content(plan.client_text.encode()),
        servers=tuple(
            ChangedServer(
                path=server.path,
                upstream=server.upstream or "",
                before=document.get(server.path),
                after=after.get(server.path),
            )
            for server in plan.moved
        ),
        config=str(config_path),
        config_before=None if config_file is None else config_file.text,
        config_after_sha256=hash_content(plan.config_text.encode()),
        added=plan.added,
        api_key_sha256=hash_api_key(api_key),
    )


def _write_config(path: Path, file: ReadFile | None, content: bytes) -> None:
    """The configuration may hold secrets, so only its user may read it."""
    if file is None:
        create_file(path, content)
    elif file.content != content or file.mode & 0o077:
        replace_file(ReadFile(file.path, file.content, file.mode & 0o700), content)


def undo_connection(stored: Path, *, client: Client, records: RecordFolder) -> UndoReport:
    """Raises `FileRefused`; the record then stays, and the undo can be repeated."""
    record = records.read(stored)
    report = _undo_client_file(record, client)
    _undo_config(record, stored, records, used=report.used)
    if report.used:
        records.keep_servers(stored, report.used)
    else:
        stored.unlink()
    return report


def _undo_client_file(record: ConnectionRecord, client: Client) -> UndoReport:
    file = read_file(Path(record.file), bytes_max=HISTORY_BYTES_MAX)
    if file is None:
        left = f"{record.file} is gone. Its servers stay in {record.config}, and their record stays."
        return UndoReport(is_exact=False, left=(left,), used=frozenset(each.upstream for each in record.servers))
    before = record.before.encode()
    if file.content == before:
        return UndoReport(is_exact=True)
    if hash_content(file.content) == record.after_sha256:
        replace_file(file, before)
        return UndoReport(is_exact=True)
    return _restore_servers(file, record, client)


def _restore_servers(file: ReadFile, record: ConnectionRecord, client: Client) -> UndoReport:
    """The user edited the file meanwhile: servers that still go through Ringback as it wrote them get their settings back."""
    document = parse_document(file.text, client)
    entries = {path: document.get(path) for path in list_servers(document, client)}
    now = {
        path: _pick_moved(cast("Mapping[str, Any]", entry))
        for path, entry in entries.items()
        if isinstance(entry, Mapping)
    }
    own = {path: server for path, entry in now.items() if (server := _find_written(path, entry, record)) is not None}
    restored = document.replace(
        [Replacement(path=path, remove=MOVED_KEYS, add=_pick_moved(each.before)) for path, each in own.items()]
    )
    if own:
        replace_file(file, restored.encode())
    edited = {
        path: server
        for path, entry in now.items()
        if path not in own and (server := _find_edited(path, entry, record)) is not None
    }
    return UndoReport(
        is_exact=False,
        left=tuple(f"'{path[-1]}' was edited meanwhile and stays." for path in edited),
        used=frozenset(server.upstream for server in edited.values()),
    )


def _find_written(path: tuple[str, ...], entry: Mapping[str, Any], record: ConnectionRecord) -> ChangedServer | None:
    """The server whose entry this is as Ringback wrote it. The user may have given it another name."""
    written = [each for each in record.servers if _pick_moved(each.after) == entry]
    return next((each for each in written if each.path == path), written[0] if written else None)


def _find_edited(path: tuple[str, ...], entry: Mapping[str, Any], record: ConnectionRecord) -> ChangedServer | None:
    """The server whose entry was edited: it stands where that one stood, or leads to its upstream."""
    for each in record.servers:
        if each.path == path:
            return each if entry != _pick_moved(each.before) else None
    return next((each for each in record.servers if _leads_to(entry, each)), None)


def _leads_to(entry: Mapping[str, Any], server: ChangedServer) -> bool:
    urls = [key for key in URL_KEYS if key in server.after]
    if urls:
        return any(entry.get(key) == server.after[key] for key in urls)
    return find_own_upstream(entry, url="") == server.upstream


def _pick_moved(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key in MOVED_KEYS}


def _undo_config(record: ConnectionRecord, stored: Path, records: RecordFolder, *, used: frozenset[str]) -> None:
    """Take the added servers out of the configuration, but for those that are still used."""
    file = read_file(Path(record.config))
    if file is None:
        return
    kept = used | _hand_over(record, stored, records)
    if not kept & record.added.keys() and hash_content(file.content) == record.config_after_sha256:
        if record.config_before is None:
            remove_file(file)
        else:
            replace_file(file, record.config_before.encode())
        return
    own = {name: entry for name, entry in record.added.items() if name not in kept}
    try:
        text = Configuration(file.text).remove_servers(own)
    except UnreadableDocument as error:
        raise FileRefused(f"{record.config} {error}. Repair it and repeat the command.") from None
    if text is None:
        remove_file(file)
    elif text != file.text:
        replace_file(file, text.encode())


def _hand_over(record: ConnectionRecord, stored: Path, records: RecordFolder) -> set[str]:
    """The added servers that other connections use. One of these connections takes each over."""
    shared = set[str]()
    for path in records.list_others(stored):
        with contextlib.suppress(FileRefused):
            shared |= _hand_over_to(path, record, records, record.added.keys() - shared)
    return shared


def _hand_over_to(path: Path, record: ConnectionRecord, records: RecordFolder, names: set[str]) -> set[str]:
    other = records.read(path)
    used = {server.upstream for server in other.servers if other.config == record.config}
    if mine := used & names:
        records.add_entries(path, {name: record.added[name] for name in mine})
    return mine
