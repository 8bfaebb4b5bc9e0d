"""The whole loop with the client that openapi-python-client generated: `python loop.py BASE_URL`."""

import sys
from http import HTTPStatus

from generated import AuthenticatedClient
from generated.api.calls import read_call, read_result, resume_call, start_call
from generated.api.webhooks import change_webhook, list_webhooks, read_webhook, register_webhook, remove_webhook
from generated.models import (
    ChangeWebhookBody,
    ChangeWebhookBodyStateType0,
    Problem,
    RegisteredWebhookView,
    RegisterWebhookBody,
    ResumeBody,
    StartCallBody,
    StartCallBodyArguments,
    StartedCallView,
)

API_KEY = "rbk_unused"  # the service of this run has no authentication

with AuthenticatedClient(base_url=sys.argv[1], token=API_KEY) as client:
    hook = register_webhook.sync(client=client, body=RegisterWebhookBody(url="https://agent.example/callback"))
    assert isinstance(hook, RegisteredWebhookView), hook
    change = ChangeWebhookBody(state=ChangeWebhookBodyStateType0.DISABLED)
    assert change_webhook.sync(hook.id, client=client, body=change).state == "disabled"
    assert read_webhook.sync(hook.id, client=client).url == "https://agent.example/callback"
    assert [each.id for each in list_webhooks.sync(client=client).webhooks] == [hook.id]
    assert remove_webhook.sync_detailed(hook.id, client=client).status_code == HTTPStatus.NO_CONTENT

    arguments = StartCallBodyArguments.from_dict({"text": "hello"})
    body = StartCallBody(upstream="stage", tool="echo", arguments=arguments)
    started = start_call.sync(client=client, body=body, idempotency_key="python-1")
    assert isinstance(started, StartedCallView), started
    call = read_call.sync(started.call.id, client=client, wait_seconds=45.0)
    assert call.outcome == "result", call
    result = read_result.sync(call.id, client=client)
    assert result["content"][0]["text"] == "hello", result
    resumed = resume_call.sync(client=client, body=ResumeBody(resume_token=started.resume_token))
    assert resumed.call.id == call.id

    problem = start_call.sync(client=client, body=StartCallBody(upstream="stage", tool="ecko"))
    assert isinstance(problem, Problem), problem
    assert (problem.status, problem.additional_properties["tool"]) == (HTTPStatus.UNPROCESSABLE_ENTITY, "ecko")
print("start, wait, result, resume, webhook CRUD, problem")
