"""An MCP server without a library. Its tool returns a small image, an invalid image, and words."""

import base64
import json
import sys

PNG = base64.b64encode(open("a.png", "rb").read()).decode()
RESULT = {
    "content": [
        {"type": "text", "text": "drawn"},
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        {"type": "image", "data": "bm8=", "mimeType": "image/png"},
    ]
}
ANSWERS = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "draw", "version": "1"},
    },
    "tools/list": {"tools": [{"name": "draw", "inputSchema": {"type": "object"}}]},
    "tools/call": RESULT,
}

for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    found = ANSWERS.get(asked["method"])
    told = {"result": found} if found is not None else {"error": {"code": -32601, "message": "no such method"}}
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **told}) + "\n")
    sys.stdout.flush()
