"""`ringback upstreams login`, with a scripted authorization server and a scripted browser."""

import asyncio
import os
import socket
import webbrowser
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
import pytest

from ringback.cli.commands import upstream_logins
from ringback.cli.commands.upstream_logins import LoginTimedOut, can_open_browser, sign_in
from ringback.client import Conflict, RingbackClient
from ringback.domain.upstream_logins import CredentialsScope
from tests.support.login_flow import CODE
from tests.support.service import PUBLIC_URL, ServiceUnderTest, running_service


@pytest.fixture
async def service(tmp_path: Path) -> AsyncGenerator[ServiceUnderTest]:
    async with running_service(tmp_path, hosted={"mine": CredentialsScope.PRINCIPAL}) as running:
        yield running


@pytest.fixture
async def client(service: ServiceUnderTest) -> AsyncGenerator[RingbackClient]:
    key = await service.create_api_key("alice")
    async with RingbackClient(PUBLIC_URL, api_key=key, transport=httpx.ASGITransport(service.app)) as opened:
        yield opened


@pytest.fixture(autouse=True)
def no_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)


def redirect_of(authorization_url: str, **query: str) -> str:
    asked = {name: values[0] for name, values in parse_qs(urlsplit(authorization_url).query).items()}
    return f"{asked['redirect_uri']}?{urlencode({'state': asked['state'], 'code': CODE} | query)}"


def script_browser(monkeypatch: pytest.MonkeyPatch, visit: Callable[[str], object]) -> None:
    def open_address(url: str) -> bool:
        visit(url)
        return True

    monkeypatch.setenv("BROWSER", "scripted")
    monkeypatch.setattr(webbrowser, "open", open_address)


async def test_a_browser_on_this_machine_completes_the_login(
    client: RingbackClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers: list[httpx.Response] = []
    script_browser(monkeypatch, lambda url: answers.append(httpx.get(redirect_of(url))))

    completed = await sign_in(client, "mine", scope="read", opens_browser=True)

    assert (completed.upstream, completed.owner, completed.scope) == ("mine", "principal", "read")
    assert answers[0].status_code == 200
    assert "Go back to the terminal" in answers[0].text
    printed = capsys.readouterr()
    assert "https://login.example/authorize?" in printed.err
    assert printed.out == ""


async def test_requests_without_the_state_of_the_login_do_not_end_the_wait(
    service: ServiceUnderTest, client: RingbackClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: list[httpx.Response] = []

    def visit(url: str) -> None:
        right = redirect_of(url)
        base = right.partition("/callback")[0]
        query = urlsplit(right).query
        wrong = (
            "/callback/mine?state=other&code=c",
            "/",
            f"/callback?{query}",
            f"/callback/ours?{query}",
            "/callback/mine",
        )
        answers.extend(httpx.get(base + target) for target in wrong)
        answers.extend([httpx.post(right), httpx.get(right)])

    script_browser(monkeypatch, visit)
    await sign_in(client, "mine", scope=None, opens_browser=True)

    assert [answer.status_code for answer in answers] == [404] * 6 + [200]
    assert service.login_flow.codes == [CODE]


async def test_the_address_can_be_pasted(
    client: RingbackClient, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    started: list[str] = []
    begin = client.start_login

    async def start_login(upstream: str, **options: str | None) -> object:
        login = await begin(upstream, **options)
        started.append(login.authorization_url)
        redirect = redirect_of(login.authorization_url)
        too_early = (login.authorization_url, redirect.replace("code=", "other="))
        lines = ("what?", "", *too_early, f"  {redirect.removeprefix('http://')}  ", "")
        os.write(writing, "\n".join(lines).encode())
        return login

    monkeypatch.setattr(client, "start_login", start_login)
    with os.fdopen(reading) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        completed = await sign_in(client, "mine", scope=None, opens_browser=False)
        os.close(writing)

    assert completed.upstream == "mine"
    assert capsys.readouterr().err.count("not the address to which this login leads") == 3


async def test_a_denied_login_ends_with_the_services_words(
    client: RingbackClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    script_browser(monkeypatch, lambda url: httpx.get(redirect_of(url, error="access_denied")))

    with pytest.raises(Conflict, match="denied"):
        await sign_in(client, "mine", scope=None, opens_browser=True)


async def test_a_login_that_is_not_completed_ends_in_time(
    client: RingbackClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_logins, "WAIT_SECONDS", 0.0)

    with pytest.raises(LoginTimedOut, match="Start again: ringback upstreams login mine"):
        await sign_in(client, "mine", scope=None, opens_browser=False)


async def test_a_program_that_connects_and_sends_nothing_does_not_delay_the_login(
    client: RingbackClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def visit(url: str) -> None:
        port = urlsplit(redirect_of(url)).port
        assert port is not None
        asyncio.run(connect_and_visit(port, redirect_of(url)))

    async def connect_and_visit(port: int, url: str) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        async with httpx.AsyncClient() as http:
            await http.get(url)
        writer.close()

    script_browser(monkeypatch, visit)

    assert (await sign_in(client, "mine", scope=None, opens_browser=True)).upstream == "mine"


async def test_a_connection_that_the_browser_leaves_unused_ends_with_the_login(
    client: RingbackClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Browsers connect ahead. Python 3.11 prints a traceback for a connection that the end of the command cancels."""
    unused: list[socket.socket] = []

    def visit(url: str) -> None:
        unused.append(socket.create_connection(("127.0.0.1", urlsplit(redirect_of(url)).port or 0)))
        httpx.get(redirect_of(url))

    script_browser(monkeypatch, visit)
    before = asyncio.all_tasks()

    await sign_in(client, "mine", scope=None, opens_browser=True)

    assert asyncio.all_tasks() <= before
    unused[0].close()


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("linux", {"BROWSER": "firefox"}, True),
        ("darwin", {}, True),
        ("win32", {}, True),
    ],
)
def test_a_terminal_without_a_display_gets_no_text_browser(
    monkeypatch: pytest.MonkeyPatch, platform: str, variables: dict[str, str], *, expected: bool
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.platform", platform)

    assert can_open_browser() is expected
