"""Options that commands share are the fields of a dataclass."""

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from ringback.cli.option_groups import expand_option_group

Size = Annotated[int, typer.Option("--size", help="Its size.")]
Name = Annotated[str, typer.Option("--name", help="Its name.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    size: Size = 1
    name: Name = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedMeasures(Measures):
    owner: Annotated[str, typer.Option("--owner")] = "alice"
    size: Annotated[int, typer.Option("--size", help="The size of what is owned.")] = 2


def test_a_command_has_the_options_of_its_group_and_gets_them_as_one_object() -> None:
    seen: list[tuple[str, OwnedMeasures]] = []

    def show(thing: str, *, options: OwnedMeasures) -> None:
        seen.append((thing, options))

    app = typer.Typer()
    app.command()(expand_option_group(show))

    assert CliRunner().invoke(app, ["box", "--name", "b"]).exit_code == 0
    assert seen == [("box", OwnedMeasures(name="b", size=2, owner="alice"))]
    text = CliRunner().invoke(app, ["--help"]).output
    assert text.index("--owner") < text.index("--size") < text.index("--name")
    assert "what is owned" in " ".join(text.split())


def test_a_command_that_declares_an_option_of_its_group_again_is_refused() -> None:
    def show(size: Size = 1, *, options: Measures) -> None: ...

    with pytest.raises(TypeError, match="size"):
        expand_option_group(show)
