// The whole loop with the client that @hey-api/openapi-ts generated: tsx loop_hey_api.ts BASE_URL
import assert from "node:assert/strict";
import { client } from "./hey/client.gen.ts";
import {
  changeWebhook, listWebhooks, readCall, readResult, readWebhook, registerWebhook, removeWebhook, resumeCall, startCall,
} from "./hey/sdk.gen.ts";

client.setConfig({ baseUrl: process.argv[2], auth: () => "rbk_unused" });

const hook = (await registerWebhook({ body: { url: "https://agent.example/callback" }, throwOnError: true })).data;
const path = { webhook_id: hook.id };
const changed = await changeWebhook({ path, body: { state: "disabled" }, throwOnError: true });
assert.equal(changed.data.state, "disabled");
assert.equal((await readWebhook({ path, throwOnError: true })).data.url, "https://agent.example/callback");
assert.ok((await listWebhooks({ throwOnError: true })).data.webhooks.some((each) => each.id === hook.id));
assert.equal((await removeWebhook({ path })).response?.status, 204);

const started = (
  await startCall({
    body: { upstream: "stage", tool: "echo", arguments: { text: "hello" } },
    headers: { "Idempotency-Key": "hey-1" },
    throwOnError: true,
  })
).data;
const call = (await readCall({ path: { call_id: started.call.id }, query: { wait_seconds: 45 }, throwOnError: true })).data;
assert.equal(call.outcome, "result");
const result = (await readResult({ path: { call_id: call.id }, throwOnError: true })).data as { content: { text: string }[] };
assert.equal(result.content[0].text, "hello");
const resumed = (await resumeCall({ body: { resume_token: started.resume_token }, throwOnError: true })).data;
assert.equal(resumed.call.id, call.id);

const { error } = await startCall({ body: { upstream: "stage", tool: "ecko" } });
assert.equal(error?.status, 422);
assert.equal(error?.["tool"], "ecko");
console.log("start, wait, result, resume, webhook CRUD, problem");
