// Subscribes with the AI SDK to the ends of calls of a session. RINGBACK_URL and CALLBACK_URL say where.
//
//   npm install @ai-sdk/mcp

import { createMCPClient, experimental_createMCPEventWebhook } from "@ai-sdk/mcp";
import { store } from "./store.mjs"; // a table of yours: get, getById, set, update, delete

export const POST = experimental_createMCPEventWebhook({ // serves the path of CALLBACK_URL
  store,
  onEvent: async ({ event }) => console.log(event.name, event.data.tool, event.data.status),
});

export async function subscribe(session) {
  const client = await createMCPClient({
    transport: { type: "http", url: `${process.env.RINGBACK_URL}/mcp`, headers: { "Ringback-Client-Session-Id": session } },
    experimental_events: { store },
  });
  await client.experimental_events.subscribe({
    name: "call.finished",
    arguments: { client_session_id: session },
    delivery: { mode: "webhook", url: process.env.CALLBACK_URL, allowInsecureLocalhost: true },
  });
  return client;
}
