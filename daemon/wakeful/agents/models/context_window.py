"""Asks the server of a local model for the size of its context window, before the first request.

vLLM reports it with its models, llama.cpp with its properties, Ollama with the models that it has loaded. Ollama
silently cuts longer conversations. So the size with which it loaded the model is used, and not the one the model was
trained for. Called by process.py. Sends no conversation.
"""

from __future__ import annotations

import re
from typing import Any

import httpx2

from wakeful.core.agents.steps import FoundWindow
from wakeful.core.spec.agent import ModelSpec

# Seconds that a server may take to connect or to answer a GET. For loading a model, it has as long as for a first
# answer.
ASK_SECONDS = 5.0
_NUM_CTX = re.compile(r"^\s*num_ctx\s+(\d+)\s*$", re.MULTILINE)


async def find_window(model: ModelSpec, key: str | None, silence_seconds: float) -> FoundWindow:
    """Find the window of a local model. If the server does not report it, `tokens` is None and `source` says so."""
    assert model.base_url is not None, "a local model has an address"
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx2.AsyncClient(
        timeout=httpx2.Timeout(silence_seconds, connect=min(ASK_SECONDS, silence_seconds)), headers=headers
    ) as client:
        return await _Server(client, model.base_url.rstrip("/"), model.model).find_window()


class _Server:
    def __init__(self, client: httpx2.AsyncClient, base: str, model: str) -> None:
        self._client = client
        self._base = base
        # The servers' own routes are next to `/v1`, which has the OpenAI-compatible ones.
        self._root = base.removesuffix("/v1")
        self._model = model

    async def find_window(self) -> FoundWindow:
        for ask in (self._ask_vllm, self._ask_llama_cpp, self._ask_ollama):
            if (found := await ask()) is not None:
                return found
        return FoundWindow(source=f"{self._base} does not report it")

    async def _ask_vllm(self) -> FoundWindow | None:
        match await self._get(f"{self._base}/models"):
            case {"data": [*models]}:
                told = (
                    one.get("max_model_len") for one in models if isinstance(one, dict) and one.get("id") == self._model
                )
                return _say_found(next(told, None), f"{self._base}/models")
            case _:
                return None

    async def _ask_llama_cpp(self) -> FoundWindow | None:
        match await self._get(f"{self._root}/props", model=self._model):
            case {"default_generation_settings": {"n_ctx": tokens}}:
                return _say_found(tokens, f"{self._root}/props")
            case _:
                return None

    async def _ask_ollama(self) -> FoundWindow | None:
        """Return the size in the model's own file, else the size with which the model is loaded.

        A model that is not loaded yet is loaded now. If that fails, the size that the model was trained for is
        returned.
        """
        shown = await self._post(f"{self._root}/api/show", {"model": self._model})
        if not isinstance(shown, dict):
            return None
        own = _NUM_CTX.search(str(shown.get("parameters") or ""))
        if own is not None:
            return _say_found(int(own[1]), f"num_ctx of {self._root}/api/show")
        loaded = await self._find_loaded()
        if loaded is None:
            # A request without a prompt loads the model and generates nothing.
            await self._post(f"{self._root}/api/generate", {"model": self._model, "stream": False})
            loaded = await self._find_loaded()
        if loaded is not None:
            return _say_found(loaded, f"{self._root}/api/ps")
        info = shown.get("model_info")
        trained = (
            next((size for name, size in info.items() if name.endswith(".context_length")), None)
            if isinstance(info, dict)
            else None
        )
        return _say_found(trained, f"context_length of {self._root}/api/show")

    async def _find_loaded(self) -> Any:
        match await self._get(f"{self._root}/api/ps"):
            case {"models": [*models]}:
                names = (self._model, f"{self._model}:latest")
                return next(
                    (
                        one.get("context_length")
                        for one in models
                        if isinstance(one, dict) and one.get("model", one.get("name")) in names
                    ),
                    None,
                )
            case _:
                return None

    async def _get(self, url: str, **params: str) -> Any:
        return await self._ask(self._client.build_request("GET", url, params=params, timeout=ASK_SECONDS))

    async def _post(self, url: str, body: object) -> Any:
        return await self._ask(self._client.build_request("POST", url, json=body))

    async def _ask(self, request: httpx2.Request) -> Any:
        """Return the server's JSON answer. None if the server does not know the route or does not answer.

        A server that is down is reported by the first request of the run.
        """
        try:
            answer = await self._client.send(request)
            return answer.json() if answer.is_success else None
        except (httpx2.HTTPError, ValueError):
            return None


def _say_found(tokens: Any, source: str) -> FoundWindow | None:
    return (
        FoundWindow(tokens=tokens, source=source)
        if isinstance(tokens, int) and not isinstance(tokens, bool) and tokens > 0
        else None
    )
