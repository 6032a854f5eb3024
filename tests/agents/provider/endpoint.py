"""The address of a scripted provider, in this process or another."""

from __future__ import annotations


class Endpoint:
    def __init__(self, url: str) -> None:
        self.url = url

    def base_url(self, format: str) -> str:
        """Return the base URL that the SDK of a format expects.

        OpenAI's SDK wants the version in it, the others add it.
        """
        return f"{self.url}/v1" if format in ("openai", "responses") else self.url
