"""Servers that are unreachable, killed, or hang: each call ends truthfully and others continue."""

import asyncio
import ssl
from dataclasses import replace
from typing import Any

import pytest

from ringback.domain.call_outcome import CallCompletion, CallOutcome
from ringback.upstreams.config import UpstreamConfig, UpstreamTransport
from ringback.upstreams.errors import UpstreamUnreachable
from ringback.upstreams.transports import guarded_http as transport
from scripts.ports import free_port
from tests.support.examples import CALL
from tests.support.receivers import CertificateAuthority
from tests.support.recording_call_context import RecordingCallContext
from tests.support.upstreams import (
    WAIT_SECONDS,
    App,
    ControlledUpstream,
    OverriddenResponses,
    Send,
    get_error_message,
    make_app_of_era,
    make_app_of_older_sdk,
    make_http_config,
    make_python_config,
    open_bound_driver,
    open_upstreams,
    run_upstream_call,
    serving,
    wait_for_state,
)

UNREACHABLE_URL = UpstreamConfig(
    name="stage", transport=UpstreamTransport.STDIO, command="ringback-no-such-command", max_concurrent=1
)


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (UNREACHABLE_URL, "command_or_folder_not_found"),
        (make_http_config("http://127.0.0.1:1/mcp"), "cannot_connect"),
    ],
)
async def test_an_unreachable_upstream_is_waited_for_and_then_reported(config: UpstreamConfig, problem: str) -> None:
    async with open_upstreams(config, patience_seconds=0.2) as upstreams:
        await wait_for_state(upstreams, "failing")
        with pytest.raises(UpstreamUnreachable, match=problem.replace("_", " ")):
            await run_upstream_call(upstreams, "echo")
        (info,) = upstreams.tool_catalog.list_upstreams()

    assert (info.state, info.last_error, info.connections) == ("failing", problem, 0)


@pytest.mark.parametrize("tls", [None, CertificateAuthority().server("127.0.0.1")], ids=["plain", "unknown authority"])
async def test_a_server_whose_certificate_is_not_accepted_or_that_speaks_no_tls_is_named_as_such(
    tls: ssl.SSLContext | None,
) -> None:
    async with serving(ControlledUpstream().app(), tls=tls) as server:
        url = server.url.replace("http://", "https://")
        async with open_upstreams(make_http_config(url), patience_seconds=0.2) as upstreams:
            await wait_for_state(upstreams, "failing")
            with pytest.raises(UpstreamUnreachable, match=r"tls failed.*RINGBACK_CA_FILE"):
                await run_upstream_call(upstreams, "echo")
            (info,) = upstreams.tool_catalog.list_upstreams()

    assert info.last_error == "tls_failed"
    assert "RINGBACK_CA_FILE" in str(info.advice)


async def test_the_advice_about_a_url_with_http_instead_of_https_names_the_scheme() -> None:
    served = serving(ControlledUpstream().app(), tls=CertificateAuthority().server("127.0.0.1"))
    async with served as server, open_upstreams(make_http_config(server.url.replace("https:", "http:"))) as upstreams:
        await wait_for_state(upstreams, "failing")
        (info,) = upstreams.tool_catalog.list_upstreams()

    assert info.last_error == "connection_lost"
    assert "http:// or https://" in str(info.advice)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("-c", "import sys; sys.exit('ERROR: ACME_TOKEN is not set')"), "exit code 1: ERROR: ACME_TOKEN is not set"),
        (("-m", "no_such_module_of_acme"), "No module named no_such_module_of_acme"),
    ],
)
async def test_a_command_that_ends_at_once_says_why_in_the_warning_and_in_the_list(
    args: tuple[str, ...], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_upstreams(make_python_config(*args)) as upstreams:
        await wait_for_state(upstreams, "failing")
        (info,) = upstreams.tool_catalog.list_upstreams()

    warnings = [each for each in caplog.records if each.message == "upstream.failing" and each.levelname == "WARNING"]
    assert words in warnings[0].__dict__["error_output"]
    assert info.last_error == "connection_lost"
    assert words in str(info.error_output)
    assert "RINGBACK_LOG_LEVELS=upstreams=debug" in str(info.advice)


async def test_a_call_waits_for_an_upstream_that_is_just_starting() -> None:
    port = free_port()
    async with open_upstreams(make_http_config(f"http://127.0.0.1:{port}/mcp"), patience_seconds=0.1) as impatient:
        with pytest.raises(UpstreamUnreachable):
            await run_upstream_call(impatient, "echo")

    async with open_upstreams(make_http_config(f"http://127.0.0.1:{port}/mcp")) as upstreams:
        call = asyncio.create_task(run_upstream_call(upstreams, "echo", {"n": 1}))
        async with serving(ControlledUpstream().app(), port=port):
            assert (await call).outcome is CallOutcome.RESULT


@pytest.mark.requirement("R33")
async def test_a_call_to_a_killed_server_is_rejected() -> None:
    async with (
        serving(ControlledUpstream().app()) as server,
        open_upstreams(make_http_config(server.url), patience_seconds=0.2) as upstreams,
    ):
        await wait_for_state(upstreams, "ready")
        assert (await run_upstream_call(upstreams, "echo")).outcome is CallOutcome.RESULT
        call = replace(CALL, upstream="stage", tool="echo")
        async with open_bound_driver(upstreams, call) as session:
            await server.kill_server()
            first = await session.run_call(RecordingCallContext(call))
            second = await session.run_call(RecordingCallContext(call))

    assert isinstance(first, CallCompletion)
    assert isinstance(second, CallCompletion)
    assert (first.outcome, second.outcome) == (CallOutcome.REJECTED, CallOutcome.REJECTED)
    assert "could not be connected to" in get_error_message(first)
    assert "before the request was sent" in get_error_message(second)


@pytest.mark.parametrize("era", ["modern", "legacy", "legacy, with 400 for an unknown session"])
async def test_a_call_survives_a_restart_that_happens_before_it_is_sent(era: str) -> None:
    """On the legacy protocol the new server answers 404: it does not know the session, so the call has not run."""
    first, second = ControlledUpstream(), ControlledUpstream()

    def make_app(upstream: ControlledUpstream) -> App:
        app = upstream.app()
        return make_app_of_older_sdk(app) if "400" in era else make_app_of_era(app, era)

    async with serving(make_app(first)) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        await run_upstream_call(upstreams, "echo")
        await server.kill_server()
        async with serving(make_app(second), port=server.port):
            ending = await run_upstream_call(upstreams, "echo", {"n": 2})

    assert ending.outcome is CallOutcome.RESULT
    assert [call.arguments for call in second.calls] == [{"n": 2}]


@pytest.mark.parametrize("eras", [("modern", "legacy"), ("legacy", "modern")], ids=" then ".join)
async def test_a_call_survives_a_restart_with_another_protocol(eras: tuple[str, str]) -> None:
    """The new server refuses what it does not speak. Each call failed until Ringback restarted, too."""
    first, second = ControlledUpstream(), ControlledUpstream()
    async with (
        serving(make_app_of_era(first.app(), eras[0])) as server,
        open_upstreams(make_http_config(server.url)) as upstreams,
    ):
        await run_upstream_call(upstreams, "echo")
        await server.kill_server()
        async with serving(make_app_of_era(second.app(), eras[1]), port=server.port):
            ending = await run_upstream_call(upstreams, "echo", {"n": 2})

    assert ending.outcome is CallOutcome.RESULT
    assert [call.arguments for call in second.calls] == [{"n": 2}]


@pytest.mark.requirement("R33")
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_calls_whose_server_is_killed_are_unknown_and_later_ones_find_the_new_server(era: str) -> None:
    first, second = ControlledUpstream(), ControlledUpstream()
    async with (
        serving(make_app_of_era(first.app(), era)) as server,
        open_upstreams(make_http_config(server.url)) as upstreams,
    ):
        calls = [asyncio.create_task(run_upstream_call(upstreams, "hold", {"n": number})) for number in range(3)]
        await first.wait_until_held(3)
        await server.kill_server()
        endings = await asyncio.gather(*calls)
        async with serving(make_app_of_era(second.app(), era), port=server.port):
            later = await run_upstream_call(upstreams, "echo")

    assert [ending.outcome for ending in endings] == [CallOutcome.UNKNOWN] * 3
    assert later.outcome is CallOutcome.RESULT
    assert [call.name for call in second.calls] == ["echo"]


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_hung_upstream_can_be_given_up_and_does_not_hold_back_other_calls(
    era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not answer the cancellation either, which the SDK sends in line with the calls that follow."""
    monkeypatch.setattr(transport, "NOTIFICATION_TIMEOUT_SECONDS", 0.1)
    hanging = asyncio.Event()

    async def hang(message: dict[str, Any], send: Send) -> None:
        hanging.set()
        await asyncio.Event().wait()

    spoiled = OverriddenResponses(
        make_app_of_era(ControlledUpstream().app(), era), {"tool:spoiled": hang, "notifications/cancelled": hang}
    )
    async with serving(spoiled) as server, open_upstreams(make_http_config(server.url)) as upstreams:
        call = asyncio.create_task(run_upstream_call(upstreams, "spoiled"))
        async with asyncio.timeout(WAIT_SECONDS):
            await hanging.wait()
        call.cancel()
        await asyncio.wait({call})
        after = await run_upstream_call(upstreams, "echo")

    assert call.cancelled()
    assert after.outcome is CallOutcome.RESULT


async def test_a_redirect_within_the_origin_is_followed_with_the_whole_message() -> None:
    app = ControlledUpstream().app()

    async def moved(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] == "/old":
            await send({"type": "http.response.start", "status": 307, "headers": [(b"location", b"/mcp")]})
            await send({"type": "http.response.body", "body": b""})
        else:
            await app(scope, receive, send)

    async with (
        serving(moved) as server,
        open_upstreams(make_http_config(server.url.replace("/mcp", "/old"))) as upstreams,
    ):
        ending = await run_upstream_call(upstreams, "echo", {"n": 1})

    assert ending.outcome is CallOutcome.RESULT
