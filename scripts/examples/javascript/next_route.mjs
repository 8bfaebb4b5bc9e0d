// Ringback's callbacks in Next.js (App Router): save as app/callbacks/route.js, with callback_receiver.mjs beside it.
//
//   npm install standardwebhooks
//   RINGBACK_WEBHOOK_SECRET=whsec_… in .env.local
//
// Each instance of a serverless function has its own memory: give createReceiver a `store` on your database.

import { BODY_BYTES_MAX, createReceiver } from "./callback_receiver.mjs";

export const runtime = "nodejs";
export const dynamic = "force-dynamic";

const receive = createReceiver({
  secrets: (process.env.RINGBACK_WEBHOOK_SECRET ?? "").split(" ").filter(Boolean),
  onCallback: async ({ name, data }) => console.log(name, data.call_id, data.outcome, data.correlation_id),
  onNotice: async (notice) => console.log(notice.type),
});

export async function POST(request) {
  const rawBody = await readBody(request);
  if (rawBody === null) return new Response(null, { status: 413 });
  const { status, headers, body } = await receive(Object.fromEntries(request.headers), rawBody);
  return new Response(body, { status, headers });
}

/** The raw body, which is what was signed; null if it is larger than a callback can be. */
async function readBody(request) {
  const chunks = [];
  let length = 0;
  for await (const chunk of request.body ?? []) {
    length += chunk.length;
    if (length > BODY_BYTES_MAX) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
