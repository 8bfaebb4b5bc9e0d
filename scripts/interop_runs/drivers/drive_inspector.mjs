// The inspector's command line: one process for each request.
import { spawn } from 'node:child_process';
import { readMcpContent, run } from './kit.mjs';

const perform = (words, signal) =>
  new Promise((resolve, reject) => {
    const child = spawn('mcp-inspector', ['--cli', ...words], { signal, stdio: ['ignore', 'pipe', 'pipe'] });
    let [out, errors] = ['', ''];
    child.stdout.on('data', (chunk) => (out += chunk));
    child.stderr.on('data', (chunk) => (errors += chunk));
    child.on('error', reject);
    child.on('close', (code) => {
      // A result with isError has an exit code of its own, and is printed all the same.
      if (code !== 0 && !out.trimStart().startsWith('{')) reject(new Error(`exit code ${code}: ${(errors || out).trim()}`));
      else resolve(JSON.parse(out));
    });
  });

await run(async ({ url, headers }) => {
  const target = [url, '--transport', 'http'];
  const named = Object.entries(headers).flatMap(([name, value]) => ['--header', `${name}: ${value}`]);
  return {
    listTools: async () => (await perform([...target, ...named, '--method', 'tools/list'])).tools.map((tool) => tool.name),
    call: async (name, args, { signal }) => {
      const values = Object.entries(args).flatMap(([key, value]) => ['--tool-arg', `${key}=${value}`]);
      const words = [...target, ...named, '--method', 'tools/call', '--tool-name', name, ...values];
      const result = await perform(words, signal);
      return readMcpContent(result.content, result.isError);
    },
    close: async () => {},
  };
});
