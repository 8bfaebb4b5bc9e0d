// @mastra/mcp: the tools of `MCPClient`, each executed as an agent executes it.
import { MCPClient } from '@mastra/mcp';
import { readMcpContent, run } from './kit.mjs';

let opened = 0;

await run(async ({ url, headers }) => {
  // Each connection has an id of its own: the class refuses two with the same configuration.
  const client = new MCPClient({
    id: `interop-${(opened += 1)}`,
    servers: { stage: { url: new URL(url), requestInit: { headers } } },
  });
  const tools = await client.listTools?.() ?? await client.getTools();
  const find = (name) => tools[`stage_${name}`];
  return {
    listTools: async () => Object.keys(tools),
    call: async (name, args, { signal }) => {
      const tool = find(name);
      const output = tool.execute.length > 1 || !tool.isLegacy ? await tool.execute(args, { abortSignal: signal }) : null;
      const content = Array.isArray(output?.content) ? output.content : [{ type: 'text', text: JSON.stringify(output) }];
      return readMcpContent(content, output?.isError);
    },
    close: () => client.disconnect(),
  };
});
