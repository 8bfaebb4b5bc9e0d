// The AI SDK, 5 and 7: the tools of its MCP client, each executed as `generateText` executes it for a model.
import { readProviderContent, run } from './kit.mjs';

// Until 5, the client is part of `ai`; later it is @ai-sdk/mcp.
const mcp = await import('@ai-sdk/mcp').catch(() => import('ai'));
const createClient = mcp.createMCPClient ?? mcp.experimental_createMCPClient;

await run(async ({ url, headers }) => {
  const client = await createClient({ transport: { type: 'http', url, headers } });
  let tools = await client.tools();
  return {
    listTools: async () => Object.keys(tools),
    call: async (name, args, { signal }) => {
      const tool = tools[name];
      const output = await tool.execute(args, { toolCallId: '1', messages: [], abortSignal: signal });
      const seen = tool.toModelOutput ? await tool.toModelOutput({ toolCallId: '1', input: args, output }) : null;
      if (seen?.type === 'content') return readProviderContent(seen.value, output.isError);
      if (seen) return readProviderContent([{ type: 'text', text: typeof seen.value === 'string' ? seen.value : JSON.stringify(seen.value) }]);
      return readProviderContent([{ type: 'text', text: JSON.stringify(output) }], output.isError);
    },
    close: () => client.close(),
  };
});
