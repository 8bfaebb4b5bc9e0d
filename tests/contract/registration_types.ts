// What a client in TypeScript gets from the whole document. tests/contract/test_callback_types.py compiles it with `strict`.
import type { components, operations, webhooks } from "./ringback";

type Schemas = components["schemas"];

export function keepSecret(registered: Schemas["RegisteredWebhookView"]): string {
  const secret: string | undefined = registered.secret; // it may be absent, and is never null
  return secret ?? "";
}

export function keepCall(started: Schemas["StartedCallView"]): string {
  const id: string = started.call_id;
  const callbackSecret: string | undefined = started.callback_secret;
  return id + (callbackSecret ?? "");
}

export function explain(call: Schemas["CallView"]): Schemas["Outcome"] | null {
  const code: Exclude<Schemas["Outcome"], "result"> | undefined = call.error?.code;
  return code ?? call.outcome;
}

export const start: operations["start_call"]["requestBody"]["content"]["application/json"] = {
  upstream: "git",
  tool: "git_log",
  not_before: "2026-11-21T06:00:00Z",
};

export type Delivered = webhooks["call.finished"]["post"]["requestBody"]["content"]["application/json"];
export const name: Delivered["name"] = "call.finished";
