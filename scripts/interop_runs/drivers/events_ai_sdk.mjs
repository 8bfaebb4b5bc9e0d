// MCP Events with the AI SDK: its client subscribes, and its webhook handler serves a port of this process.
//
// Further commands, each with its answer:
//   {do: "events"}                                        {events: [{name, delivery, ...}]}
//   {do: "subscribe", name, arguments, cursor, ttl_ms}    {key, id, refreshBefore, cursor, truncated}
//   {do: "refresh", key}                                  the same
//   {do: "unsubscribe", key}                              {unsubscribed: true}
//   {do: "received"}                                      {events, gaps, terminations, posts}
// The subscriptions and the port outlive `close`, as those of an agent's back end do. A command that fails answers {raised, code, data}.
import { createServer } from 'node:http';
import { createMCPClient, experimental_createMCPEventWebhook as createWebhook } from '@ai-sdk/mcp';
import { describe, readMcpContent, run } from './kit.mjs';

const subscriptions = new Map();
const received = { events: [], gaps: [], terminations: [], posts: [] };

const store = {
  get: async (key) => subscriptions.get(key),
  getById: async (id) => [...subscriptions.values()].find((each) => each.id === id),
  set: async (subscription) => void subscriptions.set(subscription.key, subscription),
  update: async (key, patch) => void subscriptions.set(key, { ...subscriptions.get(key), ...patch }),
  delete: async (key) => void subscriptions.delete(key),
};

const handle = createWebhook({
  store,
  onEvent: async ({ subscription, event }) => void received.events.push({ subscription: subscription.id, event }),
  onGap: async ({ subscription, gap }) => void received.gaps.push({ subscription: subscription.id, gap }),
  onTerminated: async ({ subscription, termination }) =>
    void received.terminations.push({ subscription: subscription.id, error: termination.error }),
  onError: (problem) => console.error('webhook', describe(problem)),
});

async function readBody(incoming) {
  const chunks = [];
  for await (const chunk of incoming) chunks.push(chunk);
  return Buffer.concat(chunks);
}

const server = createServer(async (incoming, outgoing) => {
  const body = await readBody(incoming);
  const url = `http://127.0.0.1:${server.address().port}${incoming.url}`;
  const answer = await handle(new Request(url, { method: incoming.method, headers: incoming.headers, body: body.length ? body : undefined }));
  const { type } = JSON.parse(body.toString() || '{}');
  received.posts.push({
    status: answer.status,
    type: type ?? 'event',
    webhook_id: incoming.headers['webhook-id'],
    timestamp: incoming.headers['webhook-timestamp'],
    signatures: incoming.headers['webhook-signature']?.split(' ').length,
    subscription: incoming.headers['x-mcp-subscription-id'],
  });
  outgoing.writeHead(answer.status, Object.fromEntries(answer.headers));
  outgoing.end(Buffer.from(await answer.arrayBuffer()));
});
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
const callbackUrl = () => `http://127.0.0.1:${server.address().port}/callbacks?tenant=a%2Fb`;

// What a caller learns of an error: its code and data too.
const answering = (work) => async (command) => {
  try {
    return await work(command);
  } catch (problem) {
    return { raised: describe(problem), code: problem?.code ?? null, data: problem?.data ?? null };
  }
};

await run(async ({ url, headers, legacy }) => {
  const client = await createMCPClient({
    transport: { type: 'http', url, headers },
    experimental_events: { store },
    protocolVersionDiscovery: !legacy,
  });
  const events = client.experimental_events;
  let tools = null;
  const more = {
    events: async () => events.list(),
    subscribe: async ({ name, arguments: values, cursor, ttl_ms: ttlMs, max_age_ms: maxAgeMs }) => {
      const known = new Set(subscriptions.keys());
      const delivery = { mode: 'webhook', url: callbackUrl(), allowInsecureLocalhost: true };
      const result = await events.subscribe({ name, arguments: values, delivery, cursor: cursor ?? null, ttlMs, maxAgeMs });
      return { ...result, key: [...subscriptions.keys()].find((key) => !known.has(key)) };
    },
    refresh: async ({ key }) => ({ ...(await events.refresh({ key })), key }),
    unsubscribe: async ({ key }) => {
      await events.unsubscribe({ key });
      return { unsubscribed: true };
    },
    received: async () => received,
  };
  return {
    listTools: async () => Object.keys((tools ??= await client.tools())),
    call: async (name, values, { signal }) => {
      tools ??= await client.tools();
      const output = await tools[name].execute(values, { toolCallId: '1', messages: [], abortSignal: signal });
      return readMcpContent(output.content ?? [], output.isError);
    },
    close: () => client.close(),
    more: Object.fromEntries(Object.entries(more).map(([name, work]) => [name, answering(work)])),
  };
});
