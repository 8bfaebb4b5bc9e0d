// The whole loop with the types of openapi-typescript and openapi-fetch: tsx loop_fetch.ts BASE_URL
import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { paths } from "./api.ts";

const client = createClient<paths>({ baseUrl: process.argv[2], headers: { Authorization: "Bearer rbk_unused" } });

function require<T>(answer: { data?: T; error?: unknown }): T {
  assert.ok(answer.data, JSON.stringify(answer.error));
  return answer.data;
}

const hook = require(await client.POST("/v1/webhooks", { body: { url: "https://agent.example/callback" } }));
const params = { path: { webhook_id: hook.id } };
const changed = require(await client.PATCH("/v1/webhooks/{webhook_id}", { params, body: { state: "disabled" } }));
assert.equal(changed.state, "disabled");
assert.equal(require(await client.GET("/v1/webhooks/{webhook_id}", { params })).url, "https://agent.example/callback");
assert.ok(require(await client.GET("/v1/webhooks")).webhooks.some((each) => each.id === hook.id));
assert.equal((await client.DELETE("/v1/webhooks/{webhook_id}", { params })).response.status, 204);

const started = require(
  await client.POST("/v1/calls", {
    params: { header: { "Idempotency-Key": "fetch-1" } },
    body: { upstream: "stage", tool: "echo", arguments: { text: "hello" } },
  }),
);
const path = { call_id: started.call.id };
const call = require(await client.GET("/v1/calls/{call_id}", { params: { path, query: { wait_seconds: 45 } } }));
assert.equal(call.outcome, "result");
const result = require(await client.GET("/v1/calls/{call_id}/result", { params: { path } })) as { content: { text: string }[] };
assert.equal(result.content[0].text, "hello");
const resumed = require(await client.POST("/v1/resume", { body: { resume_token: started.resume_token } }));
assert.equal(resumed.call.id, call.id);

const { error } = await client.POST("/v1/calls", { body: { upstream: "stage", tool: "ecko" } });
assert.equal(error?.status, 422);
assert.equal(error?.["tool"], "ecko");
console.log("start, wait, result, resume, webhook CRUD, problem");
