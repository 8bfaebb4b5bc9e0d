// @modelcontextprotocol/client, the SDK 2.x: `Client.callTool`.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { readMcpContent, run } from './kit.mjs';

await run(async ({ url, headers }) => {
  const client = new Client({ name: 'interop', version: '1.0.0' }, { versionNegotiation: { mode: 'auto' } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
  return {
    listTools: async () => (await client.listTools()).tools.map((tool) => tool.name),
    call: async (name, args, { meta, onProgress, signal }) => {
      const params = { name, arguments: args, ...(meta && { _meta: meta }) };
      const result = await client.callTool(params, { onprogress: onProgress, signal });
      return readMcpContent(result.content, result.isError);
    },
    close: () => client.close(),
  };
});
