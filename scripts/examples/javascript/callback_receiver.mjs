// Receives Ringback's callbacks in any JavaScript framework: verifies, answers challenges, drops duplicates, and handles one
// callback of a session at a time. express_receiver.mjs and next_route.mjs use it.
//
//   npm install standardwebhooks

import { Webhook } from "standardwebhooks";

export const BODY_BYTES_MAX = 262_144 + 16_384; // the largest callback, and room for senders that count only their payload
const REMEMBERED_MAX = 10_000;

/** A handler throws it if it cannot handle the callback yet; Ringback sends it again after this time. */
export class NotReady extends Error {
  constructor(retryAfterSeconds = 5, message = "Not ready yet.") {
    super(message);
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/**
 * Returns `receive(headers, rawBody)`, which resolves to `{status, headers, body}` for the response.
 *
 * `secrets`: the webhook's `whsec_…`; two of them while you rotate. `onCallback(callback)` is awaited before the response, so
 * make it quick: store the callback, or start the work. `onNotice` gets `{type: "gap", cursor}` if callbacks were given up: read
 * their events with GET /v1/events?cursor=…; and `{type: "terminated"}`.
 * `store` remembers what was handled: `await has(key)`, `await add(key)`. The default forgets at a restart; use a table of yours.
 */
export function createReceiver({ secrets, onCallback, onNotice = () => {}, store = new MemoryStore() }) {
  if (secrets.length === 0) throw new Error("A receiver needs at least one webhook secret.");
  const verifiers = secrets.map((secret) => new Webhook(secret));
  const handleInTurn = createTurns();

  return async function receive(headers, rawBody) {
    let envelope;
    try {
      envelope = verify(verifiers, headers, rawBody);
    } catch (error) {
      return respond(400, { reason: error.message });
    }
    if (envelope.type === "verification") return respond(200, { challenge: envelope.challenge });
    const messageId = headers["webhook-id"];
    // The signed body names the subscription. The header x-mcp-subscription-id is not signed, so it must not tell copies apart.
    const key = `${envelope.data?.subscription_id ?? ""} ${messageId}`;
    try {
      // A copy has the same session, so it waits for the first one.
      await handleInTurn(envelope.data?.client_session_id ?? envelope.data?.call_id ?? messageId, async () => {
        if (await store.has(key)) return;
        await (envelope.type === undefined ? onCallback(envelope) : onNotice(envelope));
        await store.add(key);
      });
      return respond(204);
    } catch (error) {
      if (error instanceof NotReady) {
        return respond(503, { reason: error.message }, { "retry-after": String(Math.ceil(error.retryAfterSeconds)) });
      }
      console.error(`Message ${messageId} could not be handled; the sender will retry:`, error);
      return respond(500, { reason: "The receiver could not handle this now." });
    }
  };
}

/** The parsed body if one of the secrets signed it within the last five minutes; throws an Error with a reason. */
function verify(verifiers, headers, rawBody) {
  let reason;
  for (const verifier of verifiers) {
    try {
      const envelope = verifier.verify(rawBody, headers);
      if (envelope === null || typeof envelope !== "object") throw new Error("The body must be a JSON object.");
      return envelope;
    } catch (error) {
      reason = error;
    }
  }
  throw reason;
}

/** Work with the same key runs one after the other, in the order of the calls. */
function createTurns() {
  const last = new Map();
  return async function run(key, work) {
    const turn = (last.get(key) ?? Promise.resolve()).then(work);
    const ended = turn.catch(() => {});
    last.set(key, ended);
    try {
      return await turn;
    } finally {
      if (last.get(key) === ended) last.delete(key);
    }
  };
}

/** Remembers the newest 10,000 messages in this process. */
class MemoryStore {
  #keys = new Set();

  async has(key) {
    return this.#keys.has(key);
  }

  async add(key) {
    this.#keys.add(key);
    if (this.#keys.size > REMEMBERED_MAX) this.#keys.delete(this.#keys.values().next().value);
  }
}

function respond(status, content, headers = {}) {
  if (content === undefined) return { status, headers, body: null };
  return { status, headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(content) };
}
