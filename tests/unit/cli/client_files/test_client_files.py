"""Files as users of each client have them, before and after: `tests/data/client_files/CASE/`.

`before` is the client's file, `after` the same with Ringback as a command, `after-url` with Ringback by URL, and
`ringback.json` Ringback's configuration. The examples follow the clients' documentation and files that users publish.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from ringback.cli.client_files.clients import Client, find_client
from ringback.cli.client_files.configuration import Configuration
from ringback.cli.client_files.entries import Surroundings
from ringback.cli.client_files.own_entries import Way
from ringback.cli.client_files.plan import Plan, parse_document, plan_connection
from ringback.upstreams.config import parse_upstreams

DATA: Final = Path(__file__).parents[3] / "data" / "client_files"
CASES: Final = sorted(path.name for path in DATA.iterdir())
COMMAND: Final = Way(command=("/opt/ringback/bin/ringback",))
URL: Final = Way(command=COMMAND.command, url="http://127.0.0.1:8090", api_key="rbk_1")
SURROUNDINGS: Final = Surroundings(home=Path("/home/ada"), folder=None, inputs={"perplexity-key": "PERPLEXITY_API_KEY"})


def read_data(case: str, name: str) -> str:
    (path,) = (DATA / case).glob(f"{name}.*")
    return path.read_bytes().decode()


def get_client(case: str) -> Client:
    client = find_client(case) or find_client(case.rpartition("-")[0])
    assert client is not None
    return client


def plan_case(case: str, way: Way) -> Plan:
    client = get_client(case)
    folder = Path("/home/ada/work/shop") if case.endswith("-project") else None
    return plan_connection(
        parse_document(read_data(case, "before"), client),
        Configuration(),
        client=client,
        way=way,
        surroundings=replace(SURROUNDINGS, folder=folder),
    )


@pytest.mark.parametrize("case", CASES)
def test_each_server_of_a_client_s_file_becomes_a_command_of_ringback_and_the_rest_stays(case: str) -> None:
    assert plan_case(case, COMMAND).client_text == read_data(case, "after")


@pytest.mark.parametrize("case", CASES)
def test_each_server_of_a_client_s_file_becomes_a_url_of_ringback_and_the_rest_stays(case: str) -> None:
    assert plan_case(case, URL).client_text == read_data(case, "after-url")


@pytest.mark.parametrize("case", CASES)
def test_the_configuration_of_ringback_gets_the_servers_with_their_references_and_secrets(case: str) -> None:
    assert plan_case(case, COMMAND).config_text == read_data(case, "ringback")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("way", [COMMAND, URL], ids=["command", "url"])
def test_a_second_connection_changes_nothing(case: str, way: Way) -> None:
    first = plan_case(case, way)
    client = get_client(case)

    second = plan_connection(
        parse_document(first.client_text, client),
        Configuration(first.config_text),
        client=client,
        way=way,
        surroundings=SURROUNDINGS,
    )

    assert second.moved == ()
    assert (second.client_text, second.config_text) == (first.client_text, first.config_text)
    assert [each.name for each in second.servers if each.is_ringback] == [each.name for each in first.moved]


@pytest.mark.parametrize("case", CASES)
def test_the_service_serves_every_server_that_moved(case: str) -> None:
    plan = plan_case(case, COMMAND)
    environment = dict.fromkeys(plan.variables, "value")

    loaded = parse_upstreams(plan.config_text, source="", environment=environment)

    assert [each.name for each in loaded.configs] == list(plan.added)
    assert loaded.skipped == ()


@pytest.mark.parametrize("case", CASES)
def test_no_secret_of_a_moved_server_stays_in_the_client_s_file(case: str) -> None:
    secrets = ("pa55word", "patAb12Cd34Ef56", "BSA0123456789abcdef", "abc123")

    assert not any(secret in plan_case(case, COMMAND).client_text for secret in secrets)
