// Serves a receiver of scripts/examples/javascript in a bare HTTP server: `next` through its route handler, `core` by itself.
//
// The handler of `core` prints `begin ID` and `end ID`. It does what the callback's tool says: `fail` throws, `not_ready` throws
// NotReady, `hold` waits for a POST to /release.

import { createServer } from "node:http";

const [folder, kind] = process.argv.slice(2);
const held = [];

async function handle(envelope) {
  console.log(`begin ${envelope.eventId}`);
  const { NotReady } = await import(`${folder}/callback_receiver.mjs`);
  if (envelope.data.tool === "fail") throw new Error("the inbox is full");
  if (envelope.data.tool === "not_ready") throw new NotReady(1.2);
  if (envelope.data.tool === "hold") await new Promise((release) => held.push(release));
  console.log(`end ${envelope.eventId}`);
}

async function createPost() {
  if (kind === "next") return (await import(`${folder}/next_route.mjs`)).POST;
  const { createReceiver } = await import(`${folder}/callback_receiver.mjs`);
  const receive = createReceiver({ secrets: process.env.RINGBACK_WEBHOOK_SECRET.split(" "), onCallback: handle });
  return async (request) => {
    const { status, headers, body } = await receive(
      Object.fromEntries(request.headers), Buffer.from(await request.arrayBuffer()));
    return new Response(body, { status, headers });
  };
}

const post = await createPost();
const server = createServer(async (incoming, outgoing) => {
  if (incoming.url === "/release") {
    held.splice(0).forEach((release) => release());
    return outgoing.end();
  }
  const request = new Request("http://receiver/callbacks", {
    method: "POST", headers: incoming.headers, body: incoming, duplex: "half" });
  const response = await post(request);
  outgoing.writeHead(response.status, Object.fromEntries(response.headers)).end(Buffer.from(await response.arrayBuffer()));
});
server.listen(0, "127.0.0.1", () => console.log(`Listening on http://127.0.0.1:${server.address().port}/callbacks`));
