"""An MCP server with an effect that can be counted: each call of `append` adds a line to a file.

Usage: `python ledger_mcp_server.py FILE`. It needs no library.
"""

import json
import os
import sys

TOOL = {
    "name": "append",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


def answer(asked: dict) -> dict:
    match asked["method"]:
        case "initialize":
            return {
                "result": {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "ledger", "version": "1"},
                }
            }
        case "tools/list":
            return {"result": {"tools": [TOOL]}}
        case "tools/call":
            text = asked["params"]["arguments"]["text"]
            fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.write(fd, f"{text}\n".encode())
            os.close(fd)
            return {"result": {"content": [{"type": "text", "text": f"appended {text}"}]}}
    return {"error": {"code": -32601, "message": "no such method"}}


for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **answer(asked)}) + "\n")
        sys.stdout.flush()
