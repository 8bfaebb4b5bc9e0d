"""Secrets taken through every path there is, and then looked for wherever they must not be."""

import base64
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from ringback.client import CallbackOptions, RingbackClient
from ringback.domain.principal import ALL_SCOPES, DEFAULT_SCOPES
from ringback.telemetry.logs import JsonFormatter, TextFormatter
from scripts.ports import free_port
from tests.support.application import PUBLIC_URL, RunningApplication, running_application
from tests.support.receivers import AcceptedConnection, Receiver, response, serving_receiver
from tests.support.upstreams import ControlledUpstream, make_http_config, make_python_config, serving

CANARIES_MIN = 30
SERVER = "tests.support.stdio_upstream"


@dataclass(slots=True)
class SecretTracker:
    """Every secret that was made, and every text that must contain none."""

    secrets: set[str] = field(default_factory=set[str])
    output: list[str] = field(default_factory=list[str])

    def add_secret(self, secret: str | None) -> str:
        assert secret
        self.secrets.add(secret)
        return secret

    def make_secret(self, name: str) -> str:
        return self.add_secret(f"canary-{name}-{len(self.secrets)}-Q0FOQVJZ")

    def webhook_secret(self) -> str:
        return self.add_secret(
            "whsec_" + base64.b64encode(f"canary {len(self.secrets):04} in a golden cage.".encode()).decode()
        )

    def find_leaks(self, text: str) -> set[str]:
        return {secret for secret in self.secrets if secret in text or secret.removeprefix("whsec_") in text}


@pytest.mark.requirement("R23")
@pytest.mark.requirement("R24")
@pytest.mark.sqlite_only("reads SQLite's files")
async def test_no_secret_is_found_in_a_log_a_metric_an_error_or_a_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="ringback")
    cage = SecretTracker()
    async with (
        serving(ControlledUpstream().app()) as server,
        serving_receiver(_echoing) as receiver,
        running_application(
            tmp_path,
            make_http_config(
                f"{server.url}?api_key={cage.make_secret('query')}", headers={"x-api-key": cage.make_secret("header")}
            ),
            make_http_config(f"http://127.0.0.1:{free_port()}/{cage.make_secret('path')}", name="away"),
            make_python_config(
                "-m", SERVER, cage.make_secret("argument"), name="child", env={"TOKEN": cage.make_secret("env")}
            ),
            connect_patience_seconds=0.1,
        ) as ringback,
    ):
        for principal in ("alice", "bob", "carol"):
            await _use_everything(ringback, cage, receiver, principal)
        cage.output.append(await _metrics(ringback, cage))
        files = b"".join(file.read_bytes() for file in _files(tmp_path)).decode("latin-1")

    logged = "\n".join(_formatted(caplog.records))
    assert len(cage.secrets) >= CANARIES_MIN
    assert len(receiver.requests) >= 3
    assert "delivery.attempted" in logged
    assert cage.find_leaks(logged) == set()
    assert cage.find_leaks("\n".join(cage.output)) == set()
    assert cage.find_leaks(files) == set()


async def _echoing(connection: AcceptedConnection) -> None:
    """A receiver that answers with all that it was sent, as debugging pages do."""
    while (request := await connection.request()) is not None:
        await connection.send(response("500 Oops", request.body[-400:] + str(request.headers).encode()))


async def _use_everything(
    ringback: RunningApplication, cage: SecretTracker, receiver: Receiver, principal: str
) -> None:
    _, key = await ringback.app.services.api_keys.create_key(principal, name="c", scopes=DEFAULT_SCOPES, upstreams=None)
    async with RingbackClient(
        PUBLIC_URL, api_key=cage.add_secret(key), transport=collect_responses(ringback, cage)
    ) as agent:
        await deliver_callback(agent, cage, receiver)
        await fail_delivery(agent, cage, receiver)
    async with httpx.AsyncClient(base_url=PUBLIC_URL, transport=collect_responses(ringback, cage)) as http:
        await _send_nonsense(http, cage, key)


async def deliver_callback(agent: RingbackClient, cage: SecretTracker, receiver: Receiver) -> None:
    given = await agent.register_webhook(receiver.url(), secret=cage.webhook_secret())
    generated = await agent.register_webhook(receiver.url(), include_result=True)
    cage.add_secret(generated.secret)
    cage.add_secret((await agent.rotate_secret(given.id)).secret)
    callback: CallbackOptions = {"url": receiver.url(), "secret": cage.webhook_secret()}
    started = await agent.start_call("stage", "echo", {"text": "x"}, callback=callback, wait_seconds=60)
    before = len(receiver.requests)
    await agent.test_webhook(given.id)
    await receiver.wait_for_requests(before + 1)
    resumed = await agent.resume(cage.add_secret(started.resume_token))
    cage.add_secret(resumed.resume_token)
    cage.add_secret(await agent.fresh_resume_token(started.call.id, revoke_older=True))


async def fail_delivery(agent: RingbackClient, cage: SecretTracker, receiver: Receiver) -> None:
    for upstream, tool in (("stage", "fail"), ("away", "echo"), ("child", "nothing")):
        callback: CallbackOptions = {"url": receiver.url(), "secret": cage.webhook_secret()}
        try:
            started = await agent.start_call(upstream, tool, {"text": "x"}, callback=callback, wait_seconds=60)
        except Exception:  # noqa: BLE001, S112 - whatever it is, what was said is what counts
            continue
        cage.add_secret(started.resume_token)


async def _send_nonsense(http: httpx.AsyncClient, cage: SecretTracker, key: str) -> None:
    """What goes wrong next to a secret: a typo in it, a field beside it, the wrong place for it."""
    authorized = {"authorization": f"Bearer {key}"}
    token, secret = cage.make_secret("token"), cage.webhook_secret()
    await http.post("/v1/resume", json={"resume_token": token}, headers=authorized)
    await http.post("/v1/resume", json={"resume_token": [token]}, headers=authorized)
    await http.post("/v1/resume", json={"resume_token": token}, headers={"authorization": f"Bearer {token}"})
    for body in (
        {"url": f"https://user:{token}@a.example/", "secret": secret},
        {"url": "https://127.0.0.1/", "secret": secret, "colour": secret},
        {"url": "https://a.example/", "secret": secret + "!"},
        {"url": "https://a.example/", "secret": [secret]},
        {"url": "https://a.example/", "secret": secret, "correlation_id": secret * 20},
    ):
        await http.post("/v1/webhooks", json=body, headers=authorized)
        await http.post("/v1/calls", json={"upstream": "stage", "tool": "x", "callback": body}, headers=authorized)
    await http.post("/v1/webhooks", content=f'{{"secret": "{secret}", ', headers=authorized)
    await http.get(f"/v1/calls/{token}", headers={"authorization": f"Basic {key}"})


def collect_responses(ringback: RunningApplication, cage: SecretTracker) -> httpx.AsyncBaseTransport:
    return _RecordingTransport(httpx.ASGITransport(app=ringback.app.api), cage)


class _RecordingTransport(httpx.AsyncBaseTransport):
    """Notes the errors: what an answer says that went well may hold the secret it was asked for."""

    def __init__(self, inner: httpx.AsyncBaseTransport, cage: SecretTracker) -> None:
        self._inner = inner
        self._cage = cage

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = await self._inner.handle_async_request(request)
        body = await answer.aread()
        if answer.is_error:
            self._cage.output.append(body.decode() + str(answer.headers))
        return answer


async def _metrics(ringback: RunningApplication, cage: SecretTracker) -> str:
    _, key = await ringback.app.services.api_keys.create_key("root", name="c", scopes=ALL_SCOPES, upstreams=None)
    async with httpx.AsyncClient(base_url=PUBLIC_URL, transport=collect_responses(ringback, cage)) as http:
        answer = await http.get("/metrics", headers={"authorization": f"Bearer {cage.add_secret(key)}"})
    assert answer.status_code == 200
    return answer.text


def _files(folder: Path) -> list[Path]:
    """The database, its write-ahead log and what is kept beside them, while the service still has them open."""
    found = [file for file in folder.rglob("*") if file.relative_to(folder).parts[0].startswith("ringback.db")]
    files = [file for file in found if file.is_file() and not file.name.endswith("key")]
    assert any(file.name.endswith("-wal") for file in files)
    return files


def _formatted(records: list[logging.LogRecord]) -> Iterator[str]:
    for record in records:
        yield TextFormatter().format(record)
        yield JsonFormatter().format(record)
        yield str(_everything(record))


def _everything(record: logging.LogRecord) -> Mapping[str, Any]:
    return record.__dict__
