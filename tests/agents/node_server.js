#!/usr/bin/env node
// A small real MCP server without a library, as packages of npm have them: it answers by a module that lies beside its package.
const { shout } = require('small-words');
const readline = require('readline');

const tools = [{ name: 'shout', description: 'Shout.', inputSchema: { type: 'object', properties: { text: { type: 'string' } }, required: ['text'] } }];

function answer(request) {
  switch (request.method) {
    case 'initialize':
      return { result: { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'node', version: '1' } } };
    case 'tools/list':
      return { result: { tools } };
    case 'tools/call':
      return { result: { content: [{ type: 'text', text: shout(request.params.arguments.text) }] } };
  }
  return { error: { code: -32601, message: 'no such method' } };
}

readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const request = JSON.parse(line);
  if (request.id !== undefined) process.stdout.write(JSON.stringify({ jsonrpc: '2.0', id: request.id, ...answer(request) }) + '\n');
});
