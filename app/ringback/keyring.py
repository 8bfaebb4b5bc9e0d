"""Where the key ring comes from: RINGBACK_SECRET_KEYS, or a key file beside the SQLite database that is made once.

The ring seals secrets and callback bodies at rest. The keys that sign resume tokens are derived from it, so that there is one
thing to keep safe, to back up and to rotate.
"""

import hmac
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from ringback.settings import Settings, SettingsError
from ringback.signing import sealing
from ringback.signing.sealing import InvalidKeyRing, KeyRing
from ringback.storage.open import sqlite_path

KEY_FILE_SUFFIX: Final = ".key"
DRAFT_NAME_BYTES: Final = 8
"""A draft's own name, so that one which a killed process left behind is in nobody's way: in a container all have one id."""
_TOKEN_PURPOSE: Final = b"ringback resume token signing key 1"


def load_key_ring(settings: Settings, *, random_bytes: Callable[[int], bytes]) -> KeyRing:
    """The ring that this service seals and signs with; raises `SettingsError` for one that is no ring."""
    if settings.secret_keys is not None:
        return _parse(settings.secret_keys.get_secret_value(), source="RINGBACK_SECRET_KEYS")
    path = sqlite_path(settings.database_url)
    key_file = path.with_name(path.name + KEY_FILE_SUFFIX)
    return _parse(_read_or_make(key_file, random_bytes), source=str(key_file))


def token_keys(ring: KeyRing) -> list[bytes]:
    """The keys that sign resume tokens, oldest first; as many as the ring has, in the opposite order."""
    newest_first = [ring.current, *(key_id for key_id in ring.keys if key_id != ring.current)]
    return [hmac.digest(ring.keys[key_id], _TOKEN_PURPOSE, "sha512") for key_id in reversed(newest_first)]


def _parse(text: str, *, source: str) -> KeyRing:
    try:
        return sealing.parse_key_ring(text.strip())
    except InvalidKeyRing as problem:
        raise SettingsError(f"{source}: {problem}") from None


def _read_or_make(path: Path, random_bytes: Callable[[int], bytes]) -> str:
    """The key file's text. It is linked into place whole, so that two processes that make it agree on one."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.{random_bytes(DRAFT_NAME_BYTES).hex()}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                file.write(sealing.new_key(random_bytes(sealing.KEY_BYTES)) + "\n")
                file.flush()
                os.fsync(file.fileno())
            _link_unless_there(draft, path)
        finally:
            draft.unlink()
    return path.read_text(encoding="ascii", errors="replace")


def _link_unless_there(draft: Path, path: Path) -> None:
    try:
        os.link(draft, path)
    except FileExistsError:
        return  # another process was first; its key is the one
