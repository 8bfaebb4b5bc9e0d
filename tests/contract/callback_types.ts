// What a receiver in TypeScript does with the types of callbacks. tests/contract/test_callback_types.py compiles it with `strict`.
import type { CallbackBody, ControlEnvelope, FinishedData, Outcome, PublishedCallback, VerificationAnswer } from "./callbacks";

export function describe(body: CallbackBody): string {
  switch (body.name) {
    case "call.finished":
      return describeEnd(body.data);
    case "call.input_required":
      return body.data.input_keys.join();
    case "call.progress":
      return `${body.data.progress.progress} of ${body.data.progress.total ?? "?"}`;
    case "webhook.test":
    case "webhook.failing":
    case "webhook.suspended":
    case "webhook.recovered":
      return body.data.webhook_id;
    case "upstream.changed":
      return body.data.uri ?? body.data.change;
    default: {
      const nothing: never = body;
      return nothing;
    }
  }
}

function describeEnd(data: FinishedData): string {
  const outcome: Outcome = data.outcome;
  const token: string | undefined = data.resume_token;
  return data.error === undefined ? outcome : `${data.error.code}: ${data.error.message} ${token ?? ""}`;
}

export function readOrder(body: PublishedCallback): unknown {
  return body.name === "order.paid" ? body.data["order_id"] : undefined;
}

export function answer(body: CallbackBody | ControlEnvelope): VerificationAnswer | undefined {
  if ("type" in body) {
    return body.type === "verification" ? { challenge: body.challenge } : undefined;
  }
  return undefined;
}

// @ts-expect-error "done" is no outcome
export const unknownOutcome: Outcome = "done";

// @ts-expect-error a result is no error
export const noError: NonNullable<FinishedData["error"]> = { code: "result", message: "" };

export function readWrongMember(body: CallbackBody): unknown {
  // @ts-expect-error the name decides which members there are
  return body.data.input_keys;
}
