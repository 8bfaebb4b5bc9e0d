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
      let output;
      try {
        output = await tool.execute(args, { abortSignal: signal });
      } catch (error) {
        if (!error?.message?.startsWith('Call call_')) throw error;
        return readMcpContent([{ type: 'text', text: error.message }], true); // as an agent shows a result with isError
      }
      const content = Array.isArray(output?.content) ? output.content : [{ type: 'text', text: JSON.stringify(output) }];
      return readMcpContent(content, output?.isError);
    },
    close: () => client.disconnect(),
  };
});
