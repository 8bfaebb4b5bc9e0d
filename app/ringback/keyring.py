"""Loads the key ring from RINGBACK_SECRET_KEYS, or from a key file beside the SQLite database, which is created once.

With PostgreSQL there is no key file: a node that made its own key could read nothing that other nodes have written.

The ring seals secrets and callback bodies at rest. The keys that sign resume tokens are derived from it, so the operator keeps,
backs up and rotates one file.
"""

import errno
import fcntl
import hmac
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ringback.domain.errors import StoreUnavailable
from ringback.settings import Settings, SettingsError
from ringback.signing import sealing
from ringback.signing.ed25519 import InvalidSigningKey, SigningKey, parse_signing_key
from ringback.signing.sealing import InvalidKeyRing, KeyRing
from ringback.storage.urls import find_named_path, find_sqlite_path

KEY_FILE_SUFFIX: Final = ".key"
DRAFT_NAME_BYTES: Final = 8
"""The random part of a draft's name, so that a draft left by a killed process blocks no other: in a container, processes
share one id."""
SIGNING_KEYS_MAX: Final = 4
"""A rotation needs two; each costs a signature in every attempt, and the header is finite."""
_DISK_IS_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_TOKEN_PURPOSE: Final = b"ringback resume token signing key 1"
_INSTANCE_PURPOSE: Final = b"ringback instance id 1"
INSTANCE_ID_LENGTH: Final = 32
"""Hexadecimal digits: 128 bits, so that no two installations have the same."""


def load_key_ring(settings: Settings, *, random_bytes: Callable[[int], bytes]) -> KeyRing:
    """The ring of this service; raises `SettingsError` for an invalid one."""
    if settings.secret_keys is not None:
        return _parse_key_ring(settings.secret_keys.get_secret_value(), source="RINGBACK_SECRET_KEYS")
    key_file = _key_file_path(settings)
    return _parse_key_ring(_read_or_create_key_file(key_file, random_bytes), source=str(key_file))


def missing_key_file(settings: Settings) -> Path | None:
    """The path of the key file that `load_key_ring` would create; None if no file is needed or it exists."""
    if settings.secret_keys is not None or (file := _key_file_path(settings)).exists():
        return None
    return file


def find_key_file(database_url: str) -> Path | None:
    """The path of the key file beside the database; None for PostgreSQL.

    Earlier versions put it beside a symbolic link to the database. Such a file counts if the database has none.
    """
    database, named = find_sqlite_path(database_url), find_named_path(database_url)
    if database is None or named is None:
        return None
    file, former = (path.with_name(path.name + KEY_FILE_SUFFIX) for path in (database, named))
    return former if database != named and not file.exists() and former.exists() else file


def key_ring_source(settings: Settings) -> str:
    """The name of the setting or file that holds the ring, for messages."""
    return "RINGBACK_SECRET_KEYS" if settings.secret_keys is not None else str(_key_file_path(settings))


def derive_token_keys(ring: KeyRing) -> list[bytes]:
    """The keys that sign resume tokens, one for each key of the ring, oldest first."""
    return [hmac.digest(ring.keys[key_id], _TOKEN_PURPOSE, "sha512") for key_id in reversed(ring.key_ids_newest_first)]


def derive_instance_id(ring: KeyRing) -> str:
    """Identifies the installation: the same for all its nodes, and unrelated to what else the key is used for."""
    return hmac.digest(ring.keys[ring.key_ids_newest_first[-1]], _INSTANCE_PURPOSE, "sha256").hex()[:INSTANCE_ID_LENGTH]


def rotate_key_file(settings: Settings, *, random_bytes: Callable[[int], bytes]) -> str:
    """Put a new key in front of the key file's keys and return its id. The service seals with it from its next start on.

    The file is replaced as a whole, keeps its owner, and is readable by that owner only. A concurrent rotation waits.
    """
    if settings.secret_keys is not None:
        raise SettingsError(
            "RINGBACK_SECRET_KEYS: the keys are not in a file. Create a key with `ringback keys ring`, put it in front of the "
            "others, a comma between them, and restart."
        )
    path = _key_file_path(settings)
    with _explaining_refusals(path), _exclusive_folder_lock(path.parent):
        ring = _parse_key_ring(_read_or_create_key_file(path, random_bytes), source=str(path))
        entry = sealing.generate_key_ring_entry(random_bytes(sealing.KEY_BYTES))
        draft = _write_draft(path, f"{entry},{sealing.format_key_ring(ring)}", random_bytes)
        try:
            _keep_owner(draft, path)
            draft.replace(path)
        except OSError:
            draft.unlink()
            raise
        _sync_folder(path.parent)
    return entry.partition(":")[0]


def load_signing_keys(settings: Settings) -> tuple[SigningKey, ...]:
    """The Ed25519 keys that sign callbacks besides the webhook's secret. Each key signs, so a receiver may know any of them."""
    if settings.signing_keys is None:
        return ()
    texts = [text.strip() for text in settings.signing_keys.get_secret_value().split(",") if text.strip()]
    if len(texts) > SIGNING_KEYS_MAX:
        raise SettingsError(f"RINGBACK_SIGNING_KEYS: at most {SIGNING_KEYS_MAX} keys sign. Drop the oldest.")
    try:
        return tuple(parse_signing_key(text) for text in texts)
    except InvalidSigningKey as problem:
        raise SettingsError(f"RINGBACK_SIGNING_KEYS: {problem}") from None


def _parse_key_ring(text: str, *, source: str) -> KeyRing:
    try:
        return sealing.parse_key_ring(text.strip())
    except InvalidKeyRing as problem:
        raise SettingsError(f"{source}: {problem}") from None


def _read_or_create_key_file(path: Path, random_bytes: Callable[[int], bytes]) -> str:
    """The text of the key file. A new file is linked into place as a whole, so two processes that create it agree on one."""
    if not path.exists():
        with _explaining_refusals(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = _write_draft(path, sealing.generate_key_ring_entry(random_bytes(sealing.KEY_BYTES)), random_bytes)
            try:
                _link_if_absent(draft, path)
            finally:
                draft.unlink()
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError as problem:
        raise SettingsError(f"{path} cannot be read: {problem.strerror}. Run this as the service's user.") from None


@contextmanager
def _explaining_refusals(path: Path) -> Generator[None]:
    """An error names the key file, not its draft, and says what to do. A full disk may pass by itself."""
    try:
        yield
    except OSError as problem:
        is_full = problem.errno in _DISK_IS_FULL
        advice = "Make room." if is_full else "Run this as the service's user, and let that user write in the folder."
        raise StoreUnavailable(
            f"The key file '{path}' cannot be written: {problem.strerror}. {advice}", needs_operator=not is_full
        ) from None


def _write_draft(path: Path, text: str, random_bytes: Callable[[int], bytes]) -> Path:
    """A synced file beside `path` with this text, readable by its owner only."""
    draft = path.with_name(f"{path.name}.{random_bytes(DRAFT_NAME_BYTES).hex()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(f"{text}\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        draft.unlink()
        raise
    return draft


def _keep_owner(draft: Path, path: Path) -> None:
    """Give the draft to the owner of the file that it replaces, if root rotates: the service runs as that user."""
    if os.geteuid() == 0:
        owner = path.stat()
        os.chown(draft, owner.st_uid, owner.st_gid)


def _link_if_absent(draft: Path, path: Path) -> None:
    try:
        os.link(draft, path)
    except FileExistsError:
        return  # another process was first: its key counts


def _key_file_path(settings: Settings) -> Path:
    """Raises `SettingsError` for PostgreSQL."""
    path = find_key_file(settings.database_url)
    if path is None:
        raise SettingsError(
            "RINGBACK_SECRET_KEYS: PostgreSQL needs them, and all nodes need the same. Create a key with `ringback keys ring`, "
            "and set it for every node and every command. An SQLite installation that moves to PostgreSQL brings the content "
            "of its key file."
        )
    return path


@contextmanager
def _exclusive_folder_lock(folder: Path) -> Generator[None]:
    """A lock that ends with its process, even after a kill; a lock file would remain."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """A renamed file survives a crash once its folder is synced."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
