"""Where a scripted provider is found, in this process or another."""

from __future__ import annotations


class Endpoint:
    def __init__(self, url: str) -> None:
        self.url = url

    def base_url(self, format: str) -> str:
        """Say what the SDK of a format takes for its base: OpenAI's want the version in it, the others add their own."""
        return f"{self.url}/v1" if format in ("openai", "responses") else self.url
