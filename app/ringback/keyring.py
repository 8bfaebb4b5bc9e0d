"""Where the key ring comes from: RINGBACK_SECRET_KEYS, or a key file beside the SQLite database that is made once.

The ring seals secrets and callback bodies at rest. The keys that sign resume tokens are derived from it, so that there is one
thing to keep safe, to back up and to rotate.
"""

import fcntl
import hmac
import os
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ringback.settings import Settings, SettingsError
from ringback.signing import sealing
from ringback.signing.ed25519 import InvalidSigningKey, SigningKey, parse_signing_key
from ringback.signing.sealing import InvalidKeyRing, KeyRing
from ringback.storage.open import sqlite_path

KEY_FILE_SUFFIX: Final = ".key"
DRAFT_NAME_BYTES: Final = 8
"""A draft's own name, so that one which a killed process left behind is in nobody's way: in a container all have one id."""
SIGNING_KEYS_MAX: Final = 4
"""A rotation needs two; each costs a signature in every attempt, and the header is finite."""
_TOKEN_PURPOSE: Final = b"ringback resume token signing key 1"


def load_key_ring(settings: Settings, *, random_bytes: Callable[[int], bytes]) -> KeyRing:
    """The ring that this service seals and signs with; raises `SettingsError` for one that is no ring."""
    if settings.secret_keys is not None:
        return _parse_key_ring(settings.secret_keys.get_secret_value(), source="RINGBACK_SECRET_KEYS")
    key_file = _key_file_path(settings)
    return _parse_key_ring(_read_or_create_key_file(key_file, random_bytes), source=str(key_file))


def missing_key_file(settings: Settings) -> Path | None:
    """The key file when it is needed and is not there, so that `load_key_ring` would make one."""
    if settings.secret_keys is not None or (file := _key_file_path(settings)).exists():
        return None
    return file


def key_ring_source(settings: Settings) -> str:
    """Where the ring comes from, for messages."""
    return "RINGBACK_SECRET_KEYS" if settings.secret_keys is not None else str(_key_file_path(settings))


def derive_token_keys(ring: KeyRing) -> list[bytes]:
    """The keys that sign resume tokens, oldest first; as many as the ring has, in the opposite order."""
    return [hmac.digest(ring.keys[key_id], _TOKEN_PURPOSE, "sha512") for key_id in reversed(ring.key_ids_newest_first)]


def rotate_key_file(settings: Settings, *, random_bytes: Callable[[int], bytes]) -> str:
    """Put a new key in front of the key file's; its id. A service seals with it from its next start on.

    The file is replaced whole, for its owner alone; whoever rotates at the same time waits.
    """
    if settings.secret_keys is not None:
        raise SettingsError(
            "RINGBACK_SECRET_KEYS: the keys are not in a file. Make a key with `ringback keys ring`, put it in front of the "
            "others, a comma between them, and restart."
        )
    path = _key_file_path(settings)
    with _exclusive_folder_lock(path.parent):
        ring = _parse_key_ring(_read_or_create_key_file(path, random_bytes), source=str(path))
        entry = sealing.generate_key_ring_entry(random_bytes(sealing.KEY_BYTES))
        draft = _write_draft(path, f"{entry},{sealing.format_key_ring(ring)}", random_bytes)
        draft.replace(path)
        _sync_folder(path.parent)
    return entry.partition(":")[0]


def load_signing_keys(settings: Settings) -> tuple[SigningKey, ...]:
    """What signs callbacks besides their webhooks' secrets: all of them, so that receivers may know any."""
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
    """The key file's text. It is linked into place whole, so that two processes that make it agree on one."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = _write_draft(path, sealing.generate_key_ring_entry(random_bytes(sealing.KEY_BYTES)), random_bytes)
        try:
            _link_if_absent(draft, path)
        finally:
            draft.unlink()
    return path.read_text(encoding="ascii", errors="replace")


def _write_draft(path: Path, text: str, random_bytes: Callable[[int], bytes]) -> Path:
    """A file beside it with this text, safe on the disk, for its owner alone."""
    draft = path.with_name(f"{path.name}.{random_bytes(DRAFT_NAME_BYTES).hex()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{text}\n")
        file.flush()
        os.fsync(file.fileno())
    return draft


def _link_if_absent(draft: Path, path: Path) -> None:
    try:
        os.link(draft, path)
    except FileExistsError:
        return  # another process was first; its key is the one


def _key_file_path(settings: Settings) -> Path:
    path = sqlite_path(settings.database_url)
    return path.with_name(path.name + KEY_FILE_SUFFIX)


@contextmanager
def _exclusive_folder_lock(folder: Path) -> Generator[None]:
    """A lock that ends with its process, however that ends; a lock file would outlive it."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """A name is safe on the disk when its folder is."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
