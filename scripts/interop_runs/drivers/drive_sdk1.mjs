// @modelcontextprotocol/sdk 1.x: `Client.callTool`, over streamable HTTP or a command.
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { readMcpContent, run } from './kit.mjs';

await run(async ({ url, headers, command }) => {
  const client = new Client({ name: 'interop', version: '1.0.0' });
  const transport = command.length
    ? new StdioClientTransport({ command: command[0], args: command.slice(1), env: process.env, stderr: 'inherit' })
    : new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
  await client.connect(transport);
  return {
    listTools: async () => (await client.listTools()).tools.map((tool) => tool.name),
    call: async (name, args, { meta, onProgress, signal }) => {
      const params = { name, arguments: args, ...(meta && { _meta: meta }) };
      const result = await client.callTool(params, undefined, { onprogress: onProgress, signal });
      return readMcpContent(result.content, result.isError);
    },
    close: () => client.close(),
  };
});
