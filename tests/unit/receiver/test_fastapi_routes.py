"""In FastAPI: the URL works with and without a slash at its end, and the receiver opens with the application."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from fastapi import Depends, FastAPI, HTTPException
from starlette.applications import Starlette
from starlette.routing import Mount, Route

from ringback.receiver import Callback, ReceiverApp, SQLiteInbox
from tests.support.limits import WAIT_SECONDS
from tests.support.signed_posts import NOW, SECRET, make_client, make_event_body, post_signed


def make_receiver(handled: list[str] | None = None, **options: Any) -> ReceiverApp:
    async def handle(callback: Callback) -> None:
        if handled is not None:
            handled.append(callback.event_id)

    return ReceiverApp(SECRET, on_callback=handle, clock=lambda: NOW, **options)


@pytest.mark.parametrize("path", ["/callbacks", "/callbacks/"])
@pytest.mark.parametrize("url", ["/callbacks", "/callbacks/"])
async def test_a_callback_arrives_with_and_without_a_slash_at_the_end(path: str, url: str) -> None:
    handled: list[str] = []
    app = FastAPI()
    make_receiver(handled).add_to(app, path)

    answer = await post_signed(app, make_event_body(), url=url)

    assert (answer.status_code, handled) == (204, ["evt_1"])


async def test_a_mounted_application_answers_307_which_is_why_there_is_a_router() -> None:
    mounted = Starlette(routes=[Mount("/callbacks", make_receiver())])

    assert (await post_signed(mounted, make_event_body(), url="/callbacks")).status_code == 307


def test_a_starlette_application_is_refused_with_the_line_that_works_there() -> None:
    app: Any = Starlette()

    with pytest.raises(TypeError) as refused:
        make_receiver().add_to(app, "/hook")

    assert str(refused.value).endswith('Starlette(lifespan=receiver.lifespan, routes=[Route("/hook", receiver)])')


async def test_the_line_for_starlette_works() -> None:
    handled: list[str] = []
    receiver = make_receiver(handled)
    app = Starlette(lifespan=receiver.lifespan, routes=[Route("/callbacks", receiver)])

    async with app.router.lifespan_context(app):
        answer = await post_signed(app, make_event_body(), url="/callbacks")

    assert (answer.status_code, handled) == (204, ["evt_1"])


async def test_a_router_may_have_a_prefix_and_the_root_as_its_path() -> None:
    app, root = FastAPI(), FastAPI()
    app.include_router(make_receiver().router("/callbacks"), prefix="/hooks")
    make_receiver().add_to(root, "/")

    assert (await post_signed(app, make_event_body(), url="/hooks/callbacks")).status_code == 204
    assert (await post_signed(root, make_event_body(), url="/")).status_code == 204
    assert (await post_signed(app, make_event_body(), url="/callbacks")).status_code == 404


async def test_starlette_routes_to_the_receiver_itself() -> None:
    app = Starlette(routes=[Route("/callbacks", make_receiver(), methods=["POST"])])

    assert (await post_signed(app, make_event_body(), url="/callbacks")).status_code == 204


async def test_other_methods_and_other_routes_are_the_application_s() -> None:
    app = FastAPI()
    make_receiver().add_to(app)

    @app.get("/callbacks")
    async def describe() -> str:  # pyright: ignore[reportUnusedFunction] - FastAPI calls it
        return "POST callbacks here"

    async with make_client(app) as client:
        assert (await client.get("/callbacks")).json() == "POST callbacks here"
        assert (await client.put("/callbacks")).status_code == 405
    assert "/callbacks/" not in app.openapi()["paths"]


async def test_the_application_s_login_does_not_stop_callbacks_which_prove_themselves() -> None:
    def refuse() -> None:
        raise HTTPException(401)

    app = FastAPI(dependencies=[Depends(refuse)])
    make_receiver().add_to(app)

    assert (await post_signed(app, make_event_body(), url="/callbacks")).status_code == 204
    assert (
        await post_signed(app, make_event_body(), url="/callbacks", message_id="evt_2", changed={"webhook-id": "x"})
    ).status_code == 400


def test_a_path_without_a_slash_at_its_start_is_refused() -> None:
    with pytest.raises(ValueError, match="must start with a slash"):
        make_receiver().add_to(FastAPI(), "callbacks")


def test_without_fastapi_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)

    with pytest.raises(ImportError, match="pip install fastapi"):
        make_receiver().router()


class Lifespan:
    """The server's half of the lifespan protocol."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._requests: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    async def send(self, kind: str) -> dict[str, Any]:
        if self._task is None:
            scope = {"type": "lifespan", "asgi": {"version": "3.0"}, "state": {}}
            self._task = asyncio.create_task(self._app(scope, self._requests.get, self.answers.put))
        await self._requests.put({"type": kind})
        return await asyncio.wait_for(self.answers.get(), WAIT_SECONDS)


@pytest.mark.parametrize("kind", ["receiver", "fastapi", "fastapi with a lifespan", "starlette"])
async def test_the_application_opens_and_closes_the_receiver(kind: str, tmp_path: Path) -> None:
    receiver = make_receiver(inbox=SQLiteInbox(tmp_path / "inbox.db"))
    opened: list[str] = []
    lifespan = Lifespan(make_app(kind, receiver, opened))

    assert (await lifespan.send("lifespan.startup"))["type"] == "lifespan.startup.complete"
    assert (tmp_path / "inbox.db-wal").exists()
    assert (await post_signed(receiver, make_event_body())).status_code == 204
    assert (await lifespan.send("lifespan.shutdown"))["type"] == "lifespan.shutdown.complete"
    assert not (tmp_path / "inbox.db-wal").exists()
    assert opened == (["own"] if kind == "fastapi with a lifespan" else [])


def make_app(kind: str, receiver: ReceiverApp, opened: list[str]) -> Any:
    @contextlib.asynccontextmanager
    async def own_lifespan(_: Any) -> AsyncGenerator[None]:
        opened.append("own")
        yield

    if kind == "receiver":
        return receiver
    if kind == "starlette":
        return Starlette(routes=[Route("/callbacks", receiver)], lifespan=receiver.lifespan)
    app = FastAPI(lifespan=own_lifespan) if kind == "fastapi with a lifespan" else FastAPI()
    receiver.add_to(app)
    return app


async def test_a_server_does_not_start_with_an_inbox_that_cannot_be_opened(tmp_path: Path) -> None:
    lifespan = Lifespan(make_receiver(inbox=SQLiteInbox(tmp_path / "missing" / "inbox.db")))

    answer = await lifespan.send("lifespan.startup")

    assert answer["type"] == "lifespan.startup.failed"
    assert "cannot be opened" in answer["message"]


async def test_too_many_requests_are_refused_before_their_bodies_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringback.receiver.app.REQUESTS_MAX", 0)

    answer = await post_signed(make_receiver(), make_event_body())

    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
