"""The form that starts a call of a tool, and the pages of upstreams."""

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from ringback.domain import json_size
from ringback.domain.errors import Unavailable
from ringback.domain.ids import CallId
from ringback.domain.principal import DEFAULT_SCOPES, Caller, Principal, Scope
from ringback.domain.upstream_logins import CredentialsScope
from ringback.domain.upstreams import SkippedUpstream, SkipReason
from ringback.services.insights.insights import Insights, ListedUpstream
from ringback.services.limits.quotas import Quotas
from ringback.services.logins.login_states import LoginState, LoginStatus
from ringback.telemetry.logs import AUDIT_LOGGER
from ringback.upstreams.catalog.tool_catalog import UpstreamToolCatalog
from tests.support import fixed_upstreams
from tests.support.service import CALLBACK_URL, ServiceUnderTest, running_service
from tests.support.viewer_browser import ViewerBrowser, sign_in

FORM = "/upstreams/git/tools/git_log"
OPERATOR = DEFAULT_SCOPES | {Scope.ADMIN}
HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}\u202e\x07'


def read_key(page: str) -> str:
    (key,) = re.findall(r'name="idempotency_key" value="([^"]+)"', page)
    return key


async def send(browser: ViewerBrowser, **fields: str) -> tuple[int, str]:
    """Send the form of the tool. Return the status, and where it leads or what it shows."""
    response = await browser.send(FORM, on=FORM, **fields)
    return response.status_code, response.headers.get("location", response.text)


@pytest.mark.usefixtures("shared_service")
async def test_a_form_starts_one_call_however_often_it_is_sent(service: ServiceUnderTest) -> None:
    browser = await sign_in(service, "alice")
    key = read_key((await browser.open(FORM)).text)
    fields = {"arguments/repo_path": "/srv/repo", "arguments/max_count": "3", "idempotency_key": key}

    first = await send(browser, **fields, client_session_id="session-7", accepts_input="1")
    again = await send(browser, **fields, client_session_id="session-7", accepts_input="1")

    assert first == again
    assert first[0] == 303
    call_id = CallId(first[1].removeprefix("/ui/calls/").removesuffix("?done=call-started"))
    call = await service.store.read(lambda tx: tx.calls.get_whole(call_id))
    assert call is not None
    assert call.arguments == {"repo_path": "/srv/repo", "max_count": 3}
    assert (call.client_session_id, call.accepts_input, call.principal) == ("session-7", True, "alice")


@pytest.mark.usefixtures("shared_service")
async def test_errors_show_the_form_again_with_what_was_typed(service: ServiceUnderTest) -> None:
    browser = await sign_in(service, "alice")

    status, page = await send(
        browser, **{"arguments/repo_path": "</textarea>&", "arguments/max_count": "many", "idempotency_key": "key-1"}
    )

    assert status == 422
    assert "“many” is no whole number." in page
    assert "\n&lt;/textarea&gt;&amp;</textarea>" in page
    assert 'value="many"' in page
    assert read_key(page) == "key-1"


@pytest.mark.usefixtures("shared_service")
async def test_a_form_that_was_sent_before_with_other_values_is_shown_again_and_can_then_be_sent(
    service: ServiceUnderTest,
) -> None:
    """A browser's way back shows the form with what was typed, and with the key that has started a call."""
    browser = await sign_in(service, "alice")
    fields = {"arguments/repo_path": "/srv/first", "idempotency_key": "key-1"}
    await send(browser, **fields)

    status, page = await send(browser, **fields | {"arguments/repo_path": "/srv/second"})
    started, _ = await send(browser, **{"arguments/repo_path": "/srv/second", "idempotency_key": read_key(page)})

    assert (status, started) == (409, 303)
    assert "/srv/second</textarea>" in page
    assert "has started a call already, with other values" in page
    assert read_key(page) != "key-1"


async def test_a_form_that_a_quota_refuses_keeps_what_was_typed(tmp_path: Path) -> None:
    async with running_service(tmp_path, quotas=Quotas(open_calls=1)) as service:
        browser = await sign_in(service, "alice")
        await send(browser, **{"arguments/repo_path": "/srv/first", "idempotency_key": "key-1"})

        status, page = await send(browser, **{"arguments/repo_path": "/srv/second", "idempotency_key": "key-2"})

    assert status == 429
    assert "/srv/second</textarea>" in page
    assert read_key(page) == "key-2"


async def test_arguments_can_be_written_as_json_and_the_service_checks_them(service: ServiceUnderTest) -> None:
    browser = await sign_in(service, "alice")
    as_json = {"as": "json", "idempotency_key": "key-1"}

    status, page = await send(browser, **as_json, arguments='{"repo_path": 7}')
    broken, _ = await send(browser, **as_json, arguments="{")
    started, _ = await send(browser, **as_json, arguments='{"repo_path": ""}')

    assert (status, broken, started) == (422, 422, 303)
    assert "#/arguments/repo_path" in page or "repo_path" in page
    assert "{&#34;repo_path&#34;: 7}" in page


async def test_a_form_is_admitted_and_limited_like_a_body_of_the_api(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its decoding takes the event loop from other requests, too."""
    admission, admitted = service.services.body_admission, list[tuple[Principal, int]]()
    admit = admission.admit_body

    async def note_and_admit(principal: Principal, body: bytes) -> None:
        admitted.append((principal, len(body)))
        await admit(principal, body)

    browser = await sign_in(service, "alice")
    monkeypatch.setattr(admission, "admit_body", note_and_admit)
    monkeypatch.setattr(json_size, "VALUES_MAX", values_max := 10_000)
    many = f'{{"repo_path": "", "numbers": [{"1," * values_max}1]}}'
    status, page = await send(browser, **{"as": "json", "idempotency_key": "key-1"}, arguments=many)

    assert status == 422
    assert f"more than {values_max} JSON values" in page
    ((principal, length),) = admitted
    assert (principal, length > len(many)) == ("alice", True)


async def test_the_secret_of_a_callback_is_shown_until_its_form_was_sent_an_hour_ago(
    service: ServiceUnderTest,
) -> None:
    browser = await sign_in(service, "alice")
    fields = {"arguments/repo_path": "/srv", "callback_url": CALLBACK_URL, "idempotency_key": "key-1"}

    status, page = await send(browser, **fields)
    again, same_page = await send(browser, **fields)
    service.clock.advance(2 * 3600)
    later, location = await send(browser, **fields)
    refused, shown = await send(browser, **fields | {"callback_url": "http://10.0.0.1/", "idempotency_key": "key-2"})

    assert (status, again, later, refused) == (201, 201, 303, 422)
    assert [text.count("whsec_") for text in (page, same_page, location)] == [1, 1, 0]
    assert location.startswith("/ui/calls/")
    assert 'value="http://10.0.0.1/"' in shown


@pytest.mark.usefixtures("shared_service")
async def test_a_key_that_may_start_no_calls_has_no_form(service: ServiceUnderTest) -> None:
    reader = await sign_in(service, "alice", scopes=frozenset({Scope.READ}))

    page = (await reader.open("/upstreams/git")).text

    assert "git_log" in page
    assert FORM not in page
    assert "/pause" not in page
    assert (await reader.open(FORM)).status_code == 403
    assert (await reader.send(FORM, on="/upstreams")).status_code == 403
    assert (await reader.send("/upstreams/git/pause", on="/upstreams")).status_code == 403


async def test_what_an_operator_decides_about_an_upstream_and_who_may_not_is_in_the_log_of_operators(
    service: ServiceUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    operator, alice = await sign_in(service, "root", scopes=OPERATOR), await sign_in(service, "alice")
    caplog.set_level("INFO", logger=AUDIT_LOGGER)

    await operator.send("/upstreams/git/pause", on="/upstreams/git")
    refused = await alice.send("/upstreams/git/resume", on="/upstreams/git")

    lines = [each.__dict__ for each in caplog.records if each.name == AUDIT_LOGGER]
    assert refused.status_code == 403
    assert [(each["msg"], each["operator"], each["operation"], each["target"]) for each in lines] == [
        ("audit.operator_request", "root", "ui_pause_upstream", "git"),
        ("audit.operator_refused", "alice", "ui_resume_upstream", "git"),
    ]


@pytest.mark.usefixtures("shared_service")
async def test_an_operator_pauses_drains_and_resumes_an_upstream(service: ServiceUnderTest) -> None:
    operator = await sign_in(service, "root", scopes=OPERATOR)

    done = [await operator.send(f"/upstreams/git/{name}", on="/upstreams/git") for name in ("pause", "drain")]
    refused = await operator.send(FORM, on=FORM, **{"arguments/repo_path": "/srv"})
    done.append(await operator.send("/upstreams/git/resume", on="/upstreams/git"))

    assert [response.status_code for response in done] == [303] * 3
    assert "The upstream is drained" in (await operator.http.get(done[1].headers["location"])).text
    assert refused.status_code == 503
    assert "being drained by an operator" in refused.text


@pytest.mark.usefixtures("shared_service")
async def test_without_scripts_a_box_that_says_what_is_at_stake_must_be_ticked_first(service: ServiceUnderTest) -> None:
    operator = await sign_in(service, "root", scopes=OPERATOR)

    page = (await operator.open("/upstreams/git")).text

    forms = re.findall(r'<form class="inline".*?</form>', page, re.DOTALL)
    asking = [form for form in forms if "data-confirm" in form]
    box = r'<noscript><label class="small"><input type="checkbox" required> [^<]+ It holds for all principals'
    assert len(asking) == 2
    assert all(re.search(box, form) for form in asking)


async def test_a_sign_in_is_offered_only_to_an_upstream_that_asked_for_one(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = await sign_in(service, "alice")
    (listed, *_) = await service.services.insights.list_upstreams(
        Caller(principal=Principal("alice"), scopes=DEFAULT_SCOPES)
    )

    async def show(state: LoginStatus) -> bool:
        login = LoginState(state=state, owner=CredentialsScope.SHARED, login_url="https://ringback.example/login/git")

        async def list_upstreams(*_: object) -> list[ListedUpstream]:
            return [replace(listed, login=login)]

        monkeypatch.setattr(Insights, "list_upstreams", list_upstreams)
        return "Sign in to git" in (await browser.open("/upstreams/git")).text

    assert not await show(LoginStatus.NONE)
    assert await show(LoginStatus.REQUIRED)


async def test_the_page_of_a_skipped_upstream_says_that_no_call_is_accepted(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = SkippedUpstream(
        name="stage", configured_name="stage", reason=SkipReason.MISSING_VARIABLE, advice="'url' needs ABSENT."
    )

    def list_skipped(_: object) -> list[SkippedUpstream]:
        return [entry]

    monkeypatch.setattr(UpstreamToolCatalog, "list_skipped", list_skipped)
    browser = await sign_in(service, "alice")

    page = (await browser.open("/upstreams/stage")).text

    assert "<dt>New calls</dt><dd>are refused: its entry in the configuration is not served</dd>" in page
    assert "&#39;url&#39; needs ABSENT." in page


async def test_an_upstream_that_is_down_has_a_page_that_says_why(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise Unavailable("The upstream 'git' cannot be reached.")

    monkeypatch.setattr(Insights, "list_tools", fail)
    browser = await sign_in(service, "alice")

    page = await browser.open("/upstreams/git")

    assert page.status_code == 200
    assert "The upstream &#39;git&#39; cannot be reached." in page.text
    assert (await browser.open("/upstreams/none")).status_code == 404
    assert (await browser.open("/upstreams/git/tools/none")).status_code == 503


class Elements(HTMLParser):
    """The tags, the names of attributes and the texts of a page. The text of a textarea is a value, kept as it is."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.is_value = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.is_value = tag == "textarea"
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts += [] if self.is_value else [data]

    def handle_endtag(self, tag: str) -> None:
        self.is_value = self.is_value and tag != "textarea"


async def test_nothing_that_an_upstream_wrote_about_a_tool_is_markup(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    field = {"type": "string", "title": HOSTILE, "description": HOSTILE, "default": HOSTILE, "format": HOSTILE}
    properties = {
        "plain": field,
        '"><script>x': {"enum": [HOSTILE], "title": HOSTILE},
        "boxes": {"type": "array", "items": {"enum": [HOSTILE, "b"]}},
        "group": {"type": "object", "title": HOSTILE, "properties": {"<b>": field}},
        "constant": {"const": HOSTILE},
    }
    tool = {
        "name": "a/b?c#<script>",
        "title": HOSTILE,
        "description": HOSTILE,
        "annotations": {"readOnlyHint": HOSTILE},
        "inputSchema": {"type": "object", "properties": properties, "required": ["constant"]},
    }
    monkeypatch.setitem(fixed_upstreams.TOOLS, "git", (tool,))
    browser = await sign_in(service, "alice")

    upstream = (await browser.open("/upstreams/git")).text
    (link,) = re.findall(r'href="/ui(/upstreams/git/tools/[^"]+)"', upstream)
    form = (await browser.http.get(f"/ui{link}")).text
    action = await browser.send(link, on=link, **{"arguments/plain": HOSTILE})

    for page in (upstream, form):
        elements = Elements(page)
        assert "img" not in elements.tags
        assert not {name for name in elements.attributes if name.startswith("on")}
        assert not any("alert" in script for script in re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL))
        assert "{{7*7}}" in "".join(elements.texts)
        assert "\u202e" not in "".join(elements.texts)
    assert action.status_code == 303, action.text
