// A session of npm's @modelcontextprotocol/client, printed as JSON: node npm_client.mjs PACKAGE_FOLDER URL MODE [CANCELLED_TOOL]
// URL and MODE may be several, joined by commas: then there is a session with each URL in each mode, and a line of JSON for each.
// MODE is legacy, auto or a revision. With a tool to cancel, "inside" is awaited on standard input before it is given up.
import { createRequire } from 'node:module';
import { once } from 'node:events';
import { pathToFileURL } from 'node:url';

const [folder, urls, modes, cancelled] = process.argv.slice(2);
const find = createRequire(pathToFileURL(`${folder}/package.json`));
const { Client, StreamableHTTPClientTransport } = await import(pathToFileURL(find.resolve('@modelcontextprotocol/client')));

async function outcome(client, name) {
  try {
    const { content, structuredContent, isError = false, _meta = {} } = await client.callTool({ name, arguments: {} });
    const meta = Object.fromEntries(Object.entries(_meta).filter(([key]) => key.startsWith('openai/')));
    return { content, structuredContent, isError, meta };
  } catch (error) {
    return { raised: error.constructor.name, code: error.code };
  }
}

async function run(url, mode) {
  const client = new Client(
    { name: 'interop', version: '1.0.0' },
    {
      capabilities: { elicitation: { form: {} } },
      versionNegotiation: { mode: ['legacy', 'auto'].includes(mode) ? mode : { pin: mode } },
    },
  );
  client.setRequestHandler('elicitation/create', async () => ({ action: 'accept', content: { colour: 'blue' } }));
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));

  const seen = {};
  if (cancelled) {
    const giving = new AbortController();
    const waiting = client.callTool({ name: cancelled, arguments: {} }, { signal: giving.signal }).catch(() => 'given up');
    await once(process.stdin, 'data');
    giving.abort();
    seen.given = await waiting;
    await client.listTools(); // what was sent before it has arrived
  } else {
    const { tools } = await client.listTools();
    seen.tools = tools
      .filter((tool) => !tool.name.startsWith('ringback_'))
      .map(({ outputSchema, execution, ...rest }) => rest); // both say what Ringback adds
    for (const name of ['count', 'lie', 'widget', 'ask', 'fail', 'missing']) seen[name] = await outcome(client, name);
  }
  console.log(JSON.stringify(seen));
  await client.close();
}

for (const mode of modes.split(',')) for (const url of urls.split(',')) await run(url, mode);
process.exit(0);
