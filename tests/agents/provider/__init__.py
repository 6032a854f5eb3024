"""A scripted model provider on loopback that speaks the real wire formats; see `script` for the language, `server` for the rest."""

from agents.provider.asked import Asked, Message, Text, Thought, Tool, ToolCall, ToolResult
from agents.provider.script import Call, Cut, Empty, Fail, Garbage, Hold, Reply, Route, Routes, Say, Slow, Think, Turns, Usage
from agents.provider.server import Provider

__all__ = [
    "Asked", "Call", "Cut", "Empty", "Fail", "Garbage", "Hold", "Message", "Provider", "Reply", "Route", "Routes", "Say", "Slow",
    "Text", "Think", "Thought", "Tool", "ToolCall", "ToolResult", "Turns", "Usage",
]  # fmt: skip
