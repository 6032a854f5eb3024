"""A small real MCP server, over its standard input and output, or over HTTP on loopback.

Usage: `python mcp_server.py [stdio | http PORT TOKEN]`.
"""

import os
import sys

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

server = MCPServer("small", log_level="CRITICAL")


@server.tool()
def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


@server.tool()
def shout(text: str) -> str:
    return text.upper()


@server.tool()
def long() -> str:
    return "x" * 500_000


@server.tool()
def fail() -> str:
    raise ToolError("this one always fails")


@server.tool()
def leave() -> str:
    os._exit(3)


@server.tool(name="odd.name/with spaces")
def odd() -> str:
    return "odd"


@server.tool()
def read(path: str) -> str:
    with open(path) as file:
        return file.read()


@server.tool()
def environment() -> str:
    return repr(dict(os.environ))


if __name__ == "__main__":
    if sys.argv[1:2] == ["http"]:
        import uvicorn
        from starlette.middleware.base import BaseHTTPMiddleware
        from starlette.responses import PlainTextResponse

        async def ask(request, call_next):
            if request.headers.get("authorization") != f"Bearer {sys.argv[3]}":
                return PlainTextResponse("no", 401)
            return await call_next(request)

        app = server.streamable_http_app(stateless_http=True)
        app.add_middleware(BaseHTTPMiddleware, dispatch=ask)
        uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
    else:
        server.run("stdio")
