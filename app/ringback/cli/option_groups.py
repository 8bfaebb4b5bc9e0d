"""Options that several commands share, declared once as the fields of a dataclass.

    @app.command("show")
    @client_command()
    def show_call(call_id: CallId, *, options: OperatorOptions) -> None: ...

The command has the options of each field of `OperatorOptions`; the function gets them as one object.
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints


def expand_option_group(command: Callable[..., None]) -> Callable[..., None]:
    """The command with one parameter for each field of its option group, which typer makes options of.

    At most one parameter of a command is a group. Raises `TypeError` if a field has the name of another parameter.
    """
    signature = inspect.signature(command, eval_str=True)
    group = next((each for each in signature.parameters.values() if is_dataclass(each.annotation)), None)
    if group is None:
        return command
    options = _list_options(group.annotation)
    names = {option.name for option in options}

    @wraps(command)
    def run(**arguments: Any) -> None:
        values = {name: arguments.pop(name) for name in names}
        command(**arguments, **{group.name: group.annotation(**values)})

    others = [each for each in signature.parameters.values() if each is not group]
    if shared := names & {each.name for each in others}:
        raise TypeError(f"{command.__name__} declares {', '.join(sorted(shared))} beside its option group")
    _set_parameters(run, [*others, *options])
    return run


def _list_options(group: type[Any]) -> list[inspect.Parameter]:
    """A parameter for each field. The help shows the fields of a class before those of its bases."""
    names: list[str] = []
    for owner in group.__mro__:
        own = inspect.get_annotations(owner)
        names = [*(name for name in names if name not in own), *own]
    defaults = {field.name: field.default for field in fields(group)}
    types = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=types[name])
        for name in names
    ]


def _set_parameters(function: Callable[..., Any], parameters: Iterable[inspect.Parameter]) -> None:
    """Typer reads both attributes."""
    keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
    function.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined] - a function may have it
    function.__annotations__ = {each.name: each.annotation for each in keywords}
