"""A reload of the upstreams' configuration while calls are queued or running."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ringback.bootstrap import Environment
from ringback.client import Forbidden, InvalidRequest, NotFound, RingbackClient, Unavailable
from ringback.domain.principal import ALL_SCOPES, DEFAULT_SCOPES
from ringback.upstreams.config import UpstreamEntry, load_upstreams
from tests.support.application import RunningApplication, running_application, wait_until_ended
from tests.support.clock import OffsetClock
from tests.support.task_upstream import TaskUpstream
from tests.support.upstreams import WAIT_SECONDS, ControlledUpstream, serving


class ConfigFile:
    """An mcpServers file and the application that reads it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, **urls: str) -> None:
        servers = {name: {"url": url, "headers": {"X-Key": "secret-of-the-file"}} for name, url in urls.items()}
        self._path.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")

    def write_invalid(self) -> None:
        self._path.write_text('{"mcpServers": [', encoding="utf-8")

    def add_invalid_entry(self, name: str) -> None:
        document = json.loads(self._path.read_text(encoding="utf-8"))
        document["mcpServers"][name] = {"url": "http://${ABSENT}/"}
        self._path.write_text(json.dumps(document), encoding="utf-8")

    def read(self) -> list[UpstreamEntry]:
        return list(load_upstreams(self._path, {}).entries)


@asynccontextmanager
async def running_with_file(file: ConfigFile, folder: Path, **options: Any) -> AsyncGenerator[RunningApplication]:
    # Do not interrupt a call while its handle is being stored.
    async with running_application(
        folder, *file.read(), read_configs=file.read, drain_seconds=WAIT_SECONDS, **options
    ) as ringback:
        yield ringback


async def make_operator_client(ringback: RunningApplication) -> RingbackClient:
    return await ringback.create_agent_client("alice", scopes=ALL_SCOPES)


@pytest.mark.requirement("R28")
async def test_calls_run_through_a_reload_and_new_ones_go_where_the_file_says(tmp_path: Path) -> None:
    old, new, file = ControlledUpstream(), ControlledUpstream(), ConfigFile(tmp_path / "mcp.json")
    async with serving(old.app()) as before, serving(new.app()) as after:
        file.write(stage=before.url)
        async with running_with_file(file, tmp_path) as ringback:
            alice = await make_operator_client(ringback)
            running = (await alice.start_call("stage", "hold", {})).call
            await asyncio.wait_for(old.wait_until_held(1), WAIT_SECONDS)
            file.write(stage=after.url, other=after.url)
            reloaded = await alice.reload_upstreams()

            assert (reloaded.added, reloaded.changed, reloaded.removed) == (("other",), ("stage",), ())
            for upstream in ("stage", "other"):
                assert (
                    await wait_until_ended(alice, (await alice.start_call(upstream, "echo", {})).call)
                ).outcome == "result"
            assert len(new.calls) == 2
            old.release.set()
            assert (await wait_until_ended(alice, running)).outcome == "result"


@pytest.mark.requirement("R28")
async def test_queued_calls_of_a_removed_upstream_wait_until_it_is_configured_again(
    tmp_path: Path,
) -> None:
    stage, file, clock = ControlledUpstream(), ConfigFile(tmp_path / "mcp.json"), OffsetClock()
    clock.stop()  # until the upstream is removed, so that the call waits for it when its deadline comes
    async with serving(stage.app()) as server:
        file.write(stage="http://127.0.0.1:1/mcp")
        async with running_with_file(file, tmp_path, environment=Environment(clock=clock)) as ringback:
            alice = await make_operator_client(ringback)
            patient = (await alice.start_call("stage", "echo", {})).call
            hasty = (await alice.start_call("stage", "echo", {}, timeout_seconds=1.0)).call
            file.write(other=server.url)
            await alice.reload_upstreams()
            clock.resume()

            with pytest.raises(InvalidRequest, match="no upstream 'stage'"):
                await alice.start_call("stage", "echo", {})
            rejected = await wait_until_ended(alice, hasty)
            assert rejected.outcome == "rejected"
            assert rejected.error is not None
            assert "not configured" in rejected.error.message

            file.write(stage=server.url)
            await alice.reload_upstreams()
            assert (await wait_until_ended(alice, patient)).outcome == "result"


@pytest.mark.requirement("R28")
async def test_a_call_with_a_handle_is_resumed_by_a_service_with_another_configuration(tmp_path: Path) -> None:
    stage, file = TaskUpstream(), ConfigFile(tmp_path / "mcp.json")
    async with serving(stage.app()) as server:
        file.write(stage=server.url)
        async with running_with_file(file, tmp_path) as ringback:
            alice = await make_operator_client(ringback)
            call = (await alice.start_call("stage", "work", {})).call
            await asyncio.wait_for(stage.wait_for_task(1), WAIT_SECONDS)
            file.write(stage=f"{server.url}?key=rotated")
            await alice.reload_upstreams()
        (await stage.wait_for_task(1)).complete_task("done")
        async with running_with_file(file, tmp_path) as ringback:
            assert (await wait_until_ended(await make_operator_client(ringback), call)).outcome == "result"

    assert len(stage.side_effects) == 1


async def test_an_invalid_configuration_changes_nothing_and_is_reported(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "mcp.json")
    async with serving(ControlledUpstream().app()) as server:
        file.write(stage=server.url)
        async with running_with_file(file, tmp_path) as ringback:
            alice = await make_operator_client(ringback)
            file.write_invalid()
            with pytest.raises(InvalidRequest) as refused:
                await alice.reload_upstreams()

            assert refused.value.status == 422
            assert refused.value.slug == "invalid-configuration"
            assert "Nothing was changed" in refused.value.detail
            assert "not valid JSON" in refused.value.detail
            assert (
                await wait_until_ended(alice, (await alice.start_call("stage", "echo", {})).call)
            ).outcome == "result"


async def test_an_entry_that_cannot_be_served_is_shown_and_named_to_callers_while_the_others_serve(
    tmp_path: Path,
) -> None:
    file = ConfigFile(tmp_path / "mcp.json")
    async with serving(ControlledUpstream().app()) as server:
        file.write(stage=server.url)
        file.add_invalid_entry("My Server")
        async with running_with_file(file, tmp_path) as ringback:
            alice = await make_operator_client(ringback)
            assert await alice.tools("stage")
            served, skipped = await alice.upstreams()
            with pytest.raises(InvalidRequest, match="skipped: 'url' needs the environment variable ABSENT") as refused:
                await alice.start_call("my-server", "echo", {})
            with pytest.raises(NotFound, match="is configured but skipped"):
                await alice.tools("my-server")
            assert (
                await wait_until_ended(alice, (await alice.start_call("stage", "echo", {})).call)
            ).outcome == "result"

            file.write(stage=server.url)
            await alice.reload_upstreams()
            (only,) = await alice.upstreams()

    assert (served.name, served.configured_name, served.state) == ("stage", "", "ready")
    assert (skipped.name, skipped.configured_name, skipped.state) == ("my-server", "My Server", "skipped")
    assert (skipped.transport, skipped.last_error) == ("unknown", "missing_variable")
    assert skipped.advice == (
        "'url' needs the environment variable ABSENT, which is not set; set it in the service's environment before starting: "
        ".env gives only RINGBACK_ settings."
    )
    assert refused.value.slug == "unknown-upstream"
    assert only.name == "stage"


async def test_a_reload_names_skipped_entries_with_the_reason_and_calls_none_of_them_removed(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "mcp.json")
    file.write(away="http://127.0.0.1:1/mcp")
    file.add_invalid_entry("stage")
    async with running_with_file(file, tmp_path) as ringback:
        alice = await make_operator_client(ringback)
        file.write()
        file.add_invalid_entry("stage")
        first, second = await alice.reload_upstreams(), await alice.reload_upstreams()
        with pytest.raises(NotFound, match="'stage' is configured but skipped: 'url' needs"):
            await alice.pause_upstream("stage")

    assert (first.removed, second.removed) == (("away",), ())
    assert first.skipped == second.skipped
    (skipped,) = first.skipped
    assert (skipped.name, skipped.reason) == ("stage", "missing_variable")
    assert "the environment variable ABSENT" in skipped.advice
    assert first.kept == ()


async def test_resuming_an_upstream_whose_entry_was_skipped_at_a_start_names_the_reason(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "mcp.json")
    file.write(stage="http://127.0.0.1:1/mcp")
    async with running_with_file(file, tmp_path) as ringback:
        await (await make_operator_client(ringback)).pause_upstream("stage")
    file.write()
    file.add_invalid_entry("stage")
    async with running_with_file(file, tmp_path) as ringback:
        resumed = await (await make_operator_client(ringback)).resume_upstream("stage")

    assert resumed.intake == "open"
    assert resumed.skipped is not None
    assert resumed.skipped.reason == "missing_variable"


async def test_an_upstream_whose_new_entry_is_invalid_goes_on_with_its_former_one_until_a_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, stage = ConfigFile(tmp_path / "mcp.json"), ControlledUpstream()
    async with serving(stage.app()) as server:
        file.write(stage=server.url, other=server.url)
        async with running_with_file(file, tmp_path) as ringback:
            alice = await make_operator_client(ringback)
            file.add_invalid_entry("stage")
            first, second = await alice.reload_upstreams(), await alice.reload_upstreams()
            ended = await wait_until_ended(alice, (await alice.start_call("stage", "echo", {})).call)
            shown = await alice.upstreams()
            file.write(stage=f"{server.url}?key=new", other=server.url)
            repaired = await alice.reload_upstreams()
            file.add_invalid_entry("stage")
        async with running_with_file(file, tmp_path) as ringback:
            started = await (await make_operator_client(ringback)).upstreams()

    assert first == second
    assert (first.unchanged, first.changed, first.removed, first.skipped) == (("other",), (), (), ())
    assert [(each.name, each.reason) for each in first.kept] == [("stage", "missing_variable")]
    assert ended.outcome == "result"
    assert {each.name: each.state for each in shown} == {"stage": "ready", "other": "ready"}
    assert shown[0].advice is not None
    assert "not valid now, and the former one stays in use: 'url' needs" in shown[0].advice
    assert [(each.last_error, each.advice) for each in shown[1:]] == [(None, None)]
    assert (repaired.changed, repaired.kept) == (("stage",), ())
    assert {each.name for each in started if each.state == "skipped"} == {"stage"}
    assert [each.__dict__["upstream"] for each in caplog.records if each.msg == "upstream.kept"] == ["stage", "stage"]


async def test_a_reload_says_how_many_calls_are_queued_at_an_upstream_that_it_removes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = ConfigFile(tmp_path / "mcp.json")
    file.write(stage="http://127.0.0.1:1/mcp", away="http://127.0.0.1:1/mcp")
    async with running_with_file(file, tmp_path) as ringback:
        alice, bob = await make_operator_client(ringback), await ringback.create_agent_client("bob")
        await alice.pause_upstream("stage")
        for client in (alice, bob):
            await client.start_call("stage", "echo", {})
        file.write()
        file.add_invalid_entry("never-served")
        first, second = await alice.reload_upstreams(), await alice.reload_upstreams()

    assert (first.removed, first.queued_calls) == (("away", "stage"), {"stage": 2})
    assert second.queued_calls == {}
    logged = [each.__dict__ for each in caplog.records if each.msg == "upstream.calls_left_queued"]
    assert [(each["upstream"], each["queued_calls"]) for each in logged] == [("stage", 2)]


async def test_a_reload_counts_queued_calls_of_an_entry_that_is_skipped_since_the_start(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "mcp.json")
    file.write(stage="http://127.0.0.1:1/mcp")
    async with running_with_file(file, tmp_path) as ringback:
        alice = await make_operator_client(ringback)
        await alice.pause_upstream("stage")
        await alice.start_call("stage", "echo", {})
    file.write()
    file.add_invalid_entry("stage")
    async with running_with_file(file, tmp_path) as ringback:
        reloaded = await (await make_operator_client(ringback)).reload_upstreams()

    assert ([each.name for each in reloaded.skipped], reloaded.queued_calls) == (["stage"], {"stage": 1})


async def test_a_key_for_some_upstreams_learns_of_no_other_skipped_entry(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "mcp.json")
    file.write()
    file.add_invalid_entry("hers")
    file.add_invalid_entry("his")
    async with running_with_file(file, tmp_path) as ringback:
        keys = ringback.app.services.api_keys
        _, key = await keys.create_key("alice", name="", scopes=DEFAULT_SCOPES, upstreams=frozenset({"hers"}))
        agent = await ringback.client(api_key=key)
        (shown,) = await agent.upstreams()
        with pytest.raises(InvalidRequest, match="There is no upstream 'his'"):
            await agent.start_call("his", "echo", {})

    assert shown.name == "hers"


async def test_only_an_operator_may_reload(tmp_path: Path) -> None:
    async with running_application(tmp_path) as ringback:
        agent = await ringback.create_agent_client("alice")
        with pytest.raises(Forbidden):
            await agent.reload_upstreams()

        unchanged = await (await make_operator_client(ringback)).reload_upstreams()
        assert unchanged.unchanged == ()


async def test_an_upstream_is_shown_with_its_transport(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "mcp.json")
    async with serving(ControlledUpstream().app()) as server:
        file.write(stage=server.url, away="http://127.0.0.1:1/mcp")
        async with running_with_file(file, tmp_path) as ringback:
            alice = await make_operator_client(ringback)
            assert await alice.tools("stage")
            with pytest.raises(Unavailable, match="cannot be reached"):
                await alice.tools("away")
            stage, away = await alice.upstreams()

    assert (stage.state, stage.protocol_version, stage.driver) == ("ready", "2026-07-28", "mrtr")
    assert (stage.last_error, stage.advice, stage.isolation) == (None, None, "shared")
    assert (away.state, away.driver, away.last_error) == ("failing", None, "cannot_connect")
    assert away.advice is not None
    assert "'url'" in away.advice
