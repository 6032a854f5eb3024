#!/usr/bin/env node
// A small MCP server without a library, laid out like a package of npm. It needs another package beside its own.
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
