"""The key ring comes from the environment or from a private file beside the database, which is created once."""

import errno
import os
import stat
import subprocess
import sys
from base64 import b64encode
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import pytest

from ringback.domain.clock import SystemClock
from ringback.domain.errors import StoreUnavailable
from ringback.keyring import derive_token_keys, load_key_ring, load_signing_keys, rotate_key_file
from ringback.settings import Settings, SettingsError
from ringback.signing import ed25519
from ringback.signing.resume_token import ResumeClaims, ResumeTokenCodec
from ringback.signing.sealing import KEY_BYTES, KeyRing
from tests.support.limits import WAIT_SECONDS

OLD, NEW = (letter * KEY_BYTES for letter in (b"o", b"n"))
SERVICE_USER = 65_534
"""Any user but root."""
PROCESSES = 4
MAKE = """
import os, sys
from ringback.keyring import load_key_ring
from ringback.settings import Settings
sys.stdin.read(1)
ring = load_key_ring(Settings(_env_file=None, database_url=sys.argv[1]), random_bytes=os.urandom)
print(ring.current, ring.keys[ring.current].hex())
"""


def settings_of(folder: Path, secret_keys: str | None = None) -> Settings:
    return Settings.model_validate({"database_url": f"sqlite:///{folder / 'ringback.db'}", "secret_keys": secret_keys})


def key_file(folder: Path) -> Path:
    return folder / "ringback.db.key"


def entry(name: str, key: bytes) -> str:
    return f"{name}:{b64encode(key).decode()}"


# -- the file ---------------------------------------------------------------------------------------------------------------


def test_the_first_start_creates_a_key_that_later_starts_read(tmp_path: Path) -> None:
    first = load_key_ring(settings_of(tmp_path), random_bytes=os.urandom)
    second = load_key_ring(settings_of(tmp_path), random_bytes=os.urandom)

    assert first == second
    assert len(first.keys[first.current_id]) == KEY_BYTES


def test_the_key_file_is_beside_the_database_whatever_link_leads_to_it(tmp_path: Path) -> None:
    link = tmp_path / "link" / "ringback.db"
    link.parent.mkdir()
    link.symlink_to(tmp_path / "ringback.db")
    first = load_key_ring(settings_of(link.parent), random_bytes=os.urandom)

    assert key_file(tmp_path).exists()
    assert not key_file(link.parent).exists()
    assert load_key_ring(settings_of(tmp_path), random_bytes=os.urandom) == first


def test_a_key_file_of_an_earlier_version_beside_a_link_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "link"
    first = load_key_ring(settings_of(folder), random_bytes=os.urandom)
    (folder / "ringback.db").symlink_to(tmp_path / "ringback.db")

    assert load_key_ring(settings_of(folder), random_bytes=os.urandom) == first
    assert not key_file(tmp_path).exists()


def test_only_the_owner_can_read_the_key_file(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        load_key_ring(settings_of(tmp_path), random_bytes=os.urandom)
    finally:
        os.umask(before)

    assert stat.S_IMODE(key_file(tmp_path).stat().st_mode) == 0o600


def test_the_folder_of_the_key_file_is_created(tmp_path: Path) -> None:
    load_key_ring(settings_of(tmp_path / "a" / "b"), random_bytes=os.urandom)

    assert key_file(tmp_path / "a" / "b").exists()


def test_processes_that_start_together_agree_on_one_key(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MAKE, settings_of(tmp_path).database_url]
    makers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(PROCESSES)
    ]

    with ThreadPoolExecutor(PROCESSES) as pool:
        keys = set(pool.map(_release_process, makers))

    assert len(keys) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["ringback.db.key"]


def _release_process(maker: "subprocess.Popen[str]") -> str:
    printed, _ = maker.communicate("\n", timeout=WAIT_SECONDS)
    return printed


def test_a_draft_left_by_a_killed_process_blocks_no_other_process(tmp_path: Path) -> None:
    """In a container every process has the same id, the one that died while it made the key included."""
    (tmp_path / f"ringback.db.key.{os.getpid()}").write_text("half a k", encoding="ascii")

    ring = load_key_ring(settings_of(tmp_path), random_bytes=os.urandom)

    assert load_key_ring(settings_of(tmp_path), random_bytes=os.urandom) == ring


@pytest.mark.parametrize("damaged", [b"", b"\xff\xfe\x00", b"half a k", entry("short", b"k" * 31).encode()])
def test_the_error_for_a_damaged_key_file_names_it_and_hides_its_content(tmp_path: Path, damaged: bytes) -> None:
    key_file(tmp_path).write_bytes(damaged)

    with pytest.raises(SettingsError) as refused:
        load_key_ring(settings_of(tmp_path), random_bytes=os.urandom)

    assert str(key_file(tmp_path)) in str(refused.value)
    assert b64encode(b"k" * 31).decode() not in str(refused.value)


# -- rotation ---------------------------------------------------------------------------------------------------------------


def test_a_rotation_puts_a_new_key_in_front_and_keeps_the_file_mode(tmp_path: Path) -> None:
    first = load_key_ring(settings_of(tmp_path), random_bytes=os.urandom)

    newest = [rotate_key_file(settings_of(tmp_path), random_bytes=os.urandom) for _ in range(2)]

    ring = load_key_ring(settings_of(tmp_path), random_bytes=os.urandom)
    assert ring.key_ids_newest_first == [newest[1], newest[0], first.current_id]
    assert ring.keys[first.current_id] == first.keys[first.current_id]
    assert stat.S_IMODE(key_file(tmp_path).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["ringback.db.key"]


def test_a_rotation_by_root_leaves_the_file_to_the_user_of_the_service(tmp_path: Path) -> None:
    load_key_ring(settings_of(tmp_path), random_bytes=os.urandom)
    if os.geteuid() == 0:
        os.chown(key_file(tmp_path), SERVICE_USER, SERVICE_USER)
    owner = key_file(tmp_path).stat()

    rotate_key_file(settings_of(tmp_path), random_bytes=os.urandom)

    rotated = key_file(tmp_path).stat()
    assert (rotated.st_uid, rotated.st_gid) == (owner.st_uid, owner.st_gid)


@pytest.mark.parametrize("rotates", [False, True])
@pytest.mark.parametrize(
    ("code", "needs_operator", "advice"),
    [
        (errno.EACCES, True, "as the service's user"),
        (errno.EROFS, True, "let that user"),
        (errno.ENOSPC, False, "Make room"),
    ],
)
def test_a_key_file_that_cannot_be_written_is_named_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, rotates: bool, code: int, needs_operator: bool, advice: str
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    if rotates:
        load_key_ring(settings_of(tmp_path), random_bytes=os.urandom)
    work = rotate_key_file if rotates else load_key_ring
    monkeypatch.setattr(os, "fsync", refuse)

    with pytest.raises(StoreUnavailable, match=rf"'{key_file(tmp_path)}' cannot be written: .*{advice}") as refused:
        work(settings_of(tmp_path), random_bytes=os.urandom)

    assert refused.value.needs_operator is needs_operator
    assert {file.name for file in tmp_path.iterdir()} <= {"ringback.db.key"}


def test_a_rotation_that_cannot_replace_the_file_leaves_no_copy_of_the_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    load_key_ring(settings_of(tmp_path), random_bytes=os.urandom)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    monkeypatch.setattr("ringback.keyring._keep_owner", refuse)

    with pytest.raises(StoreUnavailable):
        rotate_key_file(settings_of(tmp_path), random_bytes=os.urandom)

    assert {file: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_concurrent_rotations_lose_no_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(PROCESSES) as pool:
        making = [pool.submit(rotate_key_file, settings_of(tmp_path), random_bytes=os.urandom) for _ in range(8)]
        made = {each.result() for each in making}

    assert made < set(load_key_ring(settings_of(tmp_path), random_bytes=os.urandom).keys)


def test_a_damaged_file_is_not_rotated(tmp_path: Path) -> None:
    key_file(tmp_path).write_text("half a k", encoding="ascii")

    with pytest.raises(SettingsError):
        rotate_key_file(settings_of(tmp_path), random_bytes=os.urandom)

    assert key_file(tmp_path).read_text(encoding="ascii") == "half a k"


# -- keys that sign for everybody -------------------------------------------------------------------------------------------


def signing_keys(text: str | None) -> list[str]:
    return [key.public_key for key in load_signing_keys(Settings.model_validate({"signing_keys": text}))]


def test_signing_keys_keep_their_order() -> None:
    old, new = (ed25519.generate_signing_key(seed) for seed in (OLD, NEW))

    assert signing_keys(f"{new}, {old}") == [ed25519.parse_signing_key(key).public_key for key in (new, old)]
    assert signing_keys(None) == signing_keys("") == []


def test_an_invalid_signing_key_is_rejected_and_not_shown() -> None:
    with pytest.raises(SettingsError) as refused:
        signing_keys("whsk_very-secret")

    assert str(refused.value).startswith("RINGBACK_SIGNING_KEYS: ")
    assert "very-secret" not in str(refused.value)


def test_too_many_signing_keys_are_rejected() -> None:
    with pytest.raises(SettingsError, match="at most 4"):
        signing_keys(",".join(ed25519.generate_signing_key(bytes([number]) * 32) for number in range(5)))


# -- the environment --------------------------------------------------------------------------------------------------------


def test_keys_from_the_environment_create_no_file(tmp_path: Path) -> None:
    ring = load_key_ring(settings_of(tmp_path, f"{entry('new', NEW)},{entry('old', OLD)}"), random_bytes=os.urandom)

    assert ring == KeyRing(keys={"new": NEW, "old": OLD}, current_id="new")
    assert list(tmp_path.iterdir()) == []


def test_an_invalid_key_is_rejected_and_not_shown(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as refused:
        load_key_ring(settings_of(tmp_path, "old:this-is-very-secret"), random_bytes=os.urandom)

    assert str(refused.value).startswith("RINGBACK_SECRET_KEYS: ")
    assert "very-secret" not in str(refused.value)


# -- resume tokens ----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R24")
def test_tokens_stay_valid_after_a_rotation_until_their_key_is_removed() -> None:
    before = ResumeTokenCodec(derive_token_keys(KeyRing(keys={"old": OLD}, current_id="old")), audience="ringback")
    during = ResumeTokenCodec(
        derive_token_keys(KeyRing(keys={"new": NEW, "old": OLD}, current_id="new")), audience="ringback"
    )
    after = ResumeTokenCodec(derive_token_keys(KeyRing(keys={"new": NEW}, current_id="new")), audience="ringback")
    claims = ResumeClaims(call_id="call_1", principal="alice", token_version=1, cursor_seq=0, expires_at=2**40)
    now = SystemClock().now()

    def reads(reader: ResumeTokenCodec, token: str) -> bool:
        try:
            return reader.decode_token(token, principal="alice", now=now) == claims
        except Exception:  # noqa: BLE001 - only whether it can be read
            return False

    assert [reads(reader, before.encode_token(claims)) for reader in (before, during, after)] == [True, True, False]
    assert [reads(reader, during.encode_token(claims)) for reader in (before, during, after)] == [False, True, True]


def test_tokens_are_not_signed_with_the_key_that_seals() -> None:
    assert OLD not in derive_token_keys(KeyRing(keys={"old": OLD}, current_id="old"))


def test_postgresql_needs_a_key_and_its_refusal_says_how_to_make_one() -> None:
    settings = Settings.model_validate({"database_url": "postgresql://ann:hidden@db/ringback"})

    with pytest.raises(SettingsError, match=r"RINGBACK_SECRET_KEYS: .*ringback keys ring") as refusal:
        load_key_ring(settings, random_bytes=os.urandom)
    with pytest.raises(SettingsError, match="RINGBACK_SECRET_KEYS"):
        rotate_key_file(settings, random_bytes=os.urandom)

    assert "hidden" not in str(refusal.value)
