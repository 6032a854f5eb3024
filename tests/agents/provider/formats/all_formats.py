"""Every format of the server, and the additional paths that only count the tokens of a request."""

from __future__ import annotations

from agents.provider.formats import Format
from agents.provider.formats.anthropic import Anthropic
from agents.provider.formats.google import Google
from agents.provider.formats.openai import OpenAI
from agents.provider.formats.responses import Responses

OPENAI, RESPONSES, ANTHROPIC, GOOGLE = OpenAI(), Responses(), Anthropic(), Google()
FORMATS: tuple[Format, ...] = (OPENAI, RESPONSES, ANTHROPIC, GOOGLE)
# End of the path -> the format of its requests, and the name of the figure. OpenAI's completions have none.
_COUNTING: dict[str, tuple[Format, str]] = {
    "/responses/input_tokens": (RESPONSES, "input_tokens"),
    "/v1/messages/count_tokens": (ANTHROPIC, "input_tokens"),
    ":countTokens": (GOOGLE, "totalTokens"),
}


def find_counted(path: str) -> Format | None:
    """Return the format whose tokens a path counts. None for a path that asks the model."""
    return next((format for end, (format, _) in _COUNTING.items() if path.endswith(end)), None)


def write_count(format: Format, tokens: int) -> dict[str, object]:
    [name] = [name for known, name in _COUNTING.values() if known is format]
    return {name: tokens} | ({"object": "response.input_tokens"} if format is RESPONSES else {})
