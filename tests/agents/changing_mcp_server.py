"""An MCP server whose list of tools changes during use, written without a library.

Usage: `python changing_mcp_server.py 2025-06-18|2026-07-28`.
"""

import json
import sys
from typing import Any

ERA = sys.argv[1]
IS_NEW = ERA >= "2026"
tools = ["learn"]
listening: list[Any] = []


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def tell_changed() -> None:
    """Send the change to every client of the older protocol, and to subscribers of the newer one."""
    if not IS_NEW:
        send({"method": "notifications/tools/list_changed"})
    for subscription in listening:
        send(
            {
                "method": "notifications/tools/list_changed",
                "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": subscription}},
            }
        )


def answer(method: str, params: dict[str, Any], number: Any) -> dict[str, Any] | None:
    more = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if IS_NEW else {}
    match method:
        case "server/discover" if IS_NEW:
            return {"supportedVersions": [ERA], "capabilities": {"tools": {"listChanged": True}}, **more}
        case "initialize" if not IS_NEW:
            return {
                "protocolVersion": ERA,
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "changing", "version": "1"},
            }
        case "subscriptions/listen" if IS_NEW:
            listening.append(number)
            meta = {"io.modelcontextprotocol/subscriptionId": number}
            send(
                {
                    "method": "notifications/subscriptions/acknowledged",
                    "params": {"notifications": params["notifications"], "_meta": meta},
                }
            )
            return None
        case "tools/list":
            return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in tools], **more}
        case "tools/call":
            if params["name"] == "learn":
                tools.append("learnt")
                tell_changed()
            return {
                "content": [{"type": "text", "text": params["name"]}],
                **({"resultType": "complete"} if IS_NEW else {}),
            }
    raise LookupError(method)


for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    try:
        result = answer(asked["method"], asked.get("params", {}), asked["id"])
    except LookupError:
        send({"id": asked["id"], "error": {"code": -32601, "message": "no such method"}})
        continue
    if result is not None:
        send({"id": asked["id"], "result": result})
