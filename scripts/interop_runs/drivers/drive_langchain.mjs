// @langchain/mcp-adapters: the tools of `MultiServerMCPClient`, each invoked as an agent's tool node invokes it.
import { MultiServerMCPClient } from '@langchain/mcp-adapters';
import { readProviderContent, run } from './kit.mjs';

await run(async ({ url, headers }) => {
  const client = new MultiServerMCPClient({ mcpServers: { stage: { transport: 'http', url, headers } } });
  const tools = Object.fromEntries((await client.getTools()).map((tool) => [tool.name, tool]));
  return {
    listTools: async () => Object.keys(tools),
    call: async (name, args, { signal }) => {
      const message = await tools[name].invoke({ type: 'tool_call', id: '1', name, args }, { signal });
      const content = typeof message.content === 'string' ? [{ type: 'text', text: message.content }] : message.content;
      return readProviderContent(content, message.status === 'error');
    },
    close: () => client.close(),
  };
});
