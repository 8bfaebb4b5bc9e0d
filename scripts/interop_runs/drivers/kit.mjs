// The loop of every Node driver. The lines that it reads and writes are those of kit.py.
import { createInterface } from 'node:readline';

const MESSAGE_LENGTH_MAX = 600;

const say = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);
console.log = console.info = console.error; // frameworks print to standard output

export function describe(problem) {
  const inner = problem?.errors ?? [];
  if (inner.length) return inner.map(describe).join('; ');
  const cause = problem?.cause ? ` (${describe(problem.cause)})` : '';
  return `${problem?.constructor?.name ?? typeof problem}: ${problem?.message ?? problem}${cause}`.slice(0, MESSAGE_LENGTH_MAX);
}

const asText = (block) => (block.type === 'text' ? block.text : JSON.stringify(block));

// What a program reads of an MCP result: the texts, and the JSON of other blocks. It decides what a model gets.
export function readMcpContent(content, isError = false) {
  return { text: content.map(asText).join('\n'), blocks: ['text'], is_error: Boolean(isError), progress: 0 };
}

// What a framework hands to the model's provider, block by block.
export function readProviderContent(content, isError = false) {
  return { ...readMcpContent(content, isError), blocks: content.map((block) => block.type) };
}

// `open(job)` connects and returns {listTools(), call(tool, arguments, {meta, onProgress, signal}), close()}, and in `more` the
// commands that only this client has.
export async function run(open) {
  let client = null;
  const perform = {
    open: async (job) => {
      client = await open(job);
      return { opened: true };
    },
    close: async () => {
      await client?.close();
      client = null;
      return { closed: true };
    },
    list: async () => ({ tools: await client.listTools() }),
    call: async ({ tool, arguments: values, meta, cancel_after: cancelAfter }) => {
      let progress = 0;
      const giving = new AbortController();
      const timer = cancelAfter == null ? null : setTimeout(() => giving.abort(), cancelAfter * 1000);
      try {
        const options = { meta: meta ?? undefined, onProgress: () => (progress += 1), signal: giving.signal };
        const answer = await client.call(tool, values, options);
        return { ...answer, progress: Math.max(answer.progress ?? 0, progress) };
      } catch (problem) {
        if (giving.signal.aborted) return { given_up: true };
        throw problem;
      } finally {
        clearTimeout(timer);
      }
    },
  };
  process.on('unhandledRejection', (problem) => console.error('unhandled', describe(problem)));
  process.on('uncaughtException', (problem) => console.error('uncaught', describe(problem)));
  for await (const line of createInterface({ input: process.stdin })) {
    const { do: what, ...command } = JSON.parse(line);
    try {
      say(await (perform[what] ?? client.more[what])(command));
    } catch (problem) {
      say({ raised: describe(problem) });
    }
  }
  process.exit(0);
}
