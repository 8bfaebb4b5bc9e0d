"""`ringback verify`: a stored callback is valid, or the reason is clear."""

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import httpx
import pytest
import respx
from standardwebhooks import Webhook
from typer.testing import Result

from ringback.signing.ed25519 import generate_signing_key, parse_signing_key
from ringback.signing.standard_webhooks import build_signed_headers, sign_message
from tests.support.limits import WAIT_SECONDS
from tests.support.slow_bodies import send_slowly

Run = Callable[..., Result]

SECRET: Final = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER_SECRET: Final = "whsec_" + "A" * 32
KEY: Final = parse_signing_key(generate_signing_key(b"s" * 32))
TIMESTAMP: Final = 1_700_000_000
BODY: Final = b'{"eventId":"evt_1","name":"call.finished","data":{"call_id":"call_1","note":"\xc3\xa9"}}'
HEADERS: Final = build_signed_headers([SECRET], message_id="evt_1", timestamp=TIMESTAMP, body=BODY)
JWKS: Final = json.dumps({"keys": [dict(KEY.jwk)]})


def store(folder: Path, headers: dict[str, str] = HEADERS, body: bytes = BODY, *, line_end: bytes = b"\r\n") -> str:
    """A file with the request as a server received it."""
    lines = [b"POST /callbacks HTTP/1.1", *(f"{name}: {value}".encode() for name, value in headers.items()), b"", body]
    path = folder / "request.http"
    path.write_bytes(line_end.join(lines))
    return str(path)


def store_v1a(folder: Path) -> str:
    signature = sign_message([SECRET], message_id="evt_1", timestamp=TIMESTAMP, body=BODY, keys=[KEY])
    return store(folder, HEADERS | {"webhook-signature": signature.split(" ")[1]})


@pytest.mark.parametrize("line_end", [b"\r\n", b"\n"], ids=["CRLF", "LF"])
def test_a_stored_callback_is_valid_whatever_its_age(run: Run, tmp_path: Path, line_end: bytes) -> None:
    ran = run("verify", store(tmp_path, line_end=line_end), "--secret", SECRET)

    assert (ran.exit_code, ran.stdout) == (0, "valid: evt_1 call.finished call_1\n")
    assert "a receiver rejects it after 300 seconds" in ran.stderr


def test_headers_that_proxies_repeat_do_not_matter(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "request.http"
    stored = Path(store(tmp_path)).read_bytes()
    file.write_bytes(stored.replace(b"webhook-id", b"via: 1.1 a\r\nvia: 1.1 b\r\nwebhook-id", 1))

    assert run("verify", str(file), "--secret", SECRET).exit_code == 0


def test_the_outcome_is_json_too(run: Run, tmp_path: Path) -> None:
    file = store(tmp_path)

    valid = json.loads(run("verify", file, "--secret", SECRET, "--json").stdout)
    invalid = run("verify", file, "--secret", OTHER_SECRET, "--json")

    assert (valid["valid"], valid["webhook_id"], valid["timestamp"]) == (True, "evt_1", TIMESTAMP)
    assert (valid["name"], valid["call_id"]) == ("call.finished", "call_1")
    assert valid["age_seconds"] > 0
    assert invalid.exit_code == 1
    assert json.loads(invalid.stdout)["reason"].startswith("No signature matches")


def test_a_callback_signed_by_another_library_is_valid(run: Run, tmp_path: Path) -> None:
    signature = Webhook(SECRET).sign("evt_1", datetime.fromtimestamp(TIMESTAMP, UTC), BODY.decode())
    headers = {"Webhook-Id": "evt_1", "Webhook-Timestamp": str(TIMESTAMP), "Webhook-Signature": signature}

    assert run("verify", store(tmp_path, headers), "--secret", SECRET).exit_code == 0


def test_body_and_headers_may_come_apart_and_by_standard_input(run: Run) -> None:
    headers = [part for name, value in HEADERS.items() for part in ("--header", f"{name}: {value}")]

    apart = run("verify", "--body", "-", *headers, "--secret", SECRET, stdin=BODY)
    whole = run("verify", "-", stdin=b"webhook-id: evt_1\n\n{}", env={"RINGBACK_CALLBACK_SECRET": SECRET})

    assert apart.exit_code == 0
    assert (whole.exit_code, whole.stderr) == (1, "Invalid: The header webhook-timestamp is missing.\n")


def test_one_of_several_secrets_is_enough(run: Run, tmp_path: Path) -> None:
    ran = run("verify", store(tmp_path), "--secret", OTHER_SECRET, "--secret", SECRET)

    assert ran.exit_code == 0


CHANGES: Final = {
    "a line end was added": BODY + b"\n",
    "its line ends were changed": BODY.replace(b",", b",\r\n"),
    "its JSON was parsed and written again": json.dumps(json.loads(BODY), indent=2).encode(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_body_that_was_changed_on_the_way_to_the_file_is_recognised(run: Run, tmp_path: Path, change: str) -> None:
    body = CHANGES[change]
    original = body.replace(b"\r\n", b"\n") if b"\r\n" in body else BODY
    headers = build_signed_headers([SECRET], message_id="evt_1", timestamp=TIMESTAMP, body=original)

    ran = run("verify", store(tmp_path, headers, body), "--secret", SECRET)

    assert ran.exit_code == 1
    assert f"The body was changed after it was signed: {change}." in ran.stderr


def test_another_secret_and_another_body_do_not_match(run: Run, tmp_path: Path) -> None:
    for body, secret in ((BODY, OTHER_SECRET), (BODY.replace(b"call_1", b"call_2"), SECRET)):
        ran = run("verify", store(tmp_path, body=body), "--secret", secret)

        assert ran.exit_code == 1
        assert "the secret differs, or the message was changed" in ran.stderr


def test_an_age_is_limited_on_request(run: Run, tmp_path: Path) -> None:
    ran = run("verify", store(tmp_path), "--secret", SECRET, "--max-age", "300")

    assert ran.exit_code == 1
    assert "The signature is valid, but it is" in ran.stderr


# -- public keys --


def test_a_public_key_verifies_a_v1a_signature(run: Run, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(JWKS, encoding="utf-8")
    file = store_v1a(tmp_path)

    assert run("verify", file, "--jwks", str(keys)).exit_code == 0
    assert run("verify", file, "--secret", KEY.public_key).exit_code == 0


def test_keys_of_other_types_beside_the_key_are_ignored(run: Run, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    other = {"kty": "RSA", "kid": "old", "use": "sig", "n": "AQAB", "e": "AQAB"}
    keys.write_text(json.dumps({"keys": [other, dict(KEY.jwk)]}), encoding="utf-8")

    assert run("verify", store_v1a(tmp_path), "--jwks", str(keys)).exit_code == 0


def test_public_keys_are_read_from_the_sender(run: Run, tmp_path: Path) -> None:
    url = "https://ringback.example/.well-known/mcp-webhook-jwks.json"
    file = store_v1a(tmp_path)
    with respx.mock() as router:
        route = router.get(url)
        route.side_effect = [
            httpx.Response(200, text=JWKS),
            httpx.Response(200, json={"keys": []}),
            httpx.Response(404),
            httpx.Response(200, text="<h1>Hello</h1>"),
            httpx.Response(200, content=b" " * (1024 * 1024 + 1)),
            httpx.ConnectError("refused"),
        ]
        ran = [run("verify", file, "--jwks", url) for _ in range(6)]

    assert [each.exit_code for each in ran] == [0, 2, 2, 2, 2, 2]
    assert "its sender signs with secrets only" in ran[1].stderr
    assert "404" in ran[2].stderr
    assert "Check the URL, or save them to a file (--jwks FILE)" in ran[2].stderr
    assert "is not a set of Ed25519 keys" in ran[3].stderr
    assert "larger" in ran[4].stderr
    assert "refused" in ran[5].stderr


def test_keys_that_arrive_a_byte_at_a_time_are_an_error(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringback.cli.commands.verify.JWKS_TIMEOUT_SECONDS", 0.2)
    url = "https://ringback.example/jwks"
    with respx.mock() as router:
        router.get(url).mock(return_value=httpx.Response(200, content=send_slowly(b" ")))
        ran = run("verify", store_v1a(tmp_path), "--jwks", url)

    assert ran.exit_code == 2
    assert "within 0.2 s. Try again, or save them to a file (--jwks FILE)." in ran.stderr


def test_the_wrong_kind_of_key_is_recognised(run: Run, tmp_path: Path) -> None:
    assert "only v1a signatures" in run("verify", store_v1a(tmp_path), "--secret", SECRET).stderr
    assert "only v1 signatures" in run("verify", store(tmp_path), "--secret", KEY.public_key).stderr


# -- what is no stored callback --

HOSTILE: Final = {
    "empty": b"",
    "no headers": b"\r\n\r\n{}",
    "no empty line": b"webhook-id: evt_1\n{}",
    "no colon": b"webhook-id evt_1\n\n{}",
    "twice": b"webhook-id: a\nWebhook-Id: b\n\n{}",
    "binary": bytes(range(256)) * 4,
    "large": b"a: b\n\n" + b"x" * (1024 * 1024),
}


HOSTILE_ADVICE: Final = {"twice": "Keep the one that was received.", "large": "Save one request only."}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_is_no_request_is_one_message(run: Run, tmp_path: Path, name: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(HOSTILE[name])

    ran = run("verify", str(file), "--secret", SECRET)

    assert (ran.exit_code, ran.stdout) == (2, "")
    assert ran.stderr.startswith("Error: ")
    assert HOSTILE_ADVICE.get(name, "") in ran.stderr


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"webhook-timestamp": "9" * 12}, BODY),
        ({"webhook-timestamp": "now"}, BODY),
        ({"webhook-signature": "v1," + "A" * 44}, BODY),
        ({"webhook-signature": "v1," * 5000}, BODY),
        ({"webhook-signature": "é"}, BODY),
        ({}, b"[" * 100_000),
        ({}, b"\xff"),
        ({}, b""),
    ],
)
def test_a_hostile_request_is_invalid_and_crashes_nothing(
    run: Run, tmp_path: Path, headers: dict[str, str], body: bytes
) -> None:
    ran = run("verify", store(tmp_path, HEADERS | headers, body), "--secret", SECRET)

    assert (ran.exit_code, ran.stdout) == (1, "")
    assert ran.stderr.startswith("Invalid: ")


def test_a_message_from_far_ahead_is_described(run: Run, tmp_path: Path) -> None:
    headers = build_signed_headers([SECRET], message_id="evt_1", timestamp=10**12 - 1, body=b"{}")

    ran = run("verify", store(tmp_path, headers, b"{}"), "--secret", SECRET)

    assert ran.exit_code == 0
    assert "ahead of this clock" in ran.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("verify",), "FILE"),
        (("verify", "a", "--body", "b"), "FILE"),
        (("verify", "missing", "--secret", SECRET), "missing: No such file"),
        (
            (
                "verify",
                "-",
            ),
            "--secret",
        ),
        (("verify", "-", "--secret", "whsec_short"), "--secret"),
    ],
)
def test_an_incomplete_command_line_says_what_to_add(run: Run, arguments: tuple[str, ...], words: str) -> None:
    ran = run(*arguments, stdin=b"a: b\n\n{}")

    assert ran.exit_code == 2
    assert words in ran.stderr


def test_a_closed_standard_input_is_named() -> None:
    closing = 'exec "$0" -c "from ringback.cli.app import app; app()" verify - --secret "$1" <&-'
    ran = subprocess.run(
        ["/bin/sh", "-c", closing, sys.executable, SECRET],
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )

    assert (ran.returncode, ran.stderr) == (2, "Error: Standard input is closed. Give the name of a file.\n")
