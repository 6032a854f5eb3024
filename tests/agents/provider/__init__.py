"""A scripted model provider on loopback that speaks the real wire formats.

See `script` for the language of the scripts, and `server` for the server.
"""

from agents.provider.endpoint import Endpoint
from agents.provider.model_request import Asked, Message, Text, Thought, Tool, ToolCall, ToolResult
from agents.provider.remote import Remote, spawn
from agents.provider.script import (
    Call,
    Cut,
    Empty,
    Fail,
    Garbage,
    Hold,
    Reply,
    Route,
    Routes,
    Say,
    Script,
    Slow,
    Think,
    Turn,
    Turns,
    Usage,
)
from agents.provider.server import Provider

__all__ = [
    "Asked", "Call", "Cut", "Empty", "Endpoint", "Fail", "Garbage", "Hold", "Message", "Provider", "Remote", "Reply", "Route", "Routes", "Say", "Script", "Slow",
    "Text", "Think", "Thought", "Tool", "ToolCall", "ToolResult", "Turn", "Turns", "Usage", "spawn",
]  # fmt: skip
