// Ringback's callbacks in Express. The raw body is what was signed, so this route comes before any express.json().
//
//   npm install express standardwebhooks
//   RINGBACK_WEBHOOK_SECRET=whsec_… PORT=9000 node express_receiver.mjs

import express from "express";
import { BODY_BYTES_MAX, createReceiver } from "./callback_receiver.mjs";

const receive = createReceiver({
  secrets: process.env.RINGBACK_WEBHOOK_SECRET.split(" "),
  onCallback: async ({ name, data }) => console.log(name, data.call_id, data.outcome, data.correlation_id),
  onNotice: async (notice) => console.log(notice.type),
});

const app = express();
app.post("/callbacks", express.raw({ type: () => true, inflate: false, limit: BODY_BYTES_MAX }), async (request, response) => {
  const { status, headers, body } = await receive(request.headers, Buffer.from(request.body ?? ""));
  response.status(status).set(headers).end(body);
});
app.use((error, _request, response, _next) => {
  response.status(error.status ?? 500).end(); // such as 413; Express itself would send the stack trace
});

const server = app.listen(Number(process.env.PORT ?? 9000), "127.0.0.1", () => {
  console.log(`Listening on http://127.0.0.1:${server.address().port}/callbacks`);
});
