"""The routes by which servers of local models report a model's context window, in their documented shapes.

`Provider.local` is one of these classes, or None. With None each such route gives 404, as other servers do.
"""

from __future__ import annotations

import msgspec

ROUTES = ("/v1/models", "/props", "/api/show", "/api/ps", "/api/generate")


class Vllm:
    """vLLM, with `GET /v1/models`."""

    def __init__(self, model: str, tokens: int) -> None:
        self._card = {
            "id": model,
            "object": "model",
            "created": 1723770563,
            "owned_by": "vllm",
            "root": model,
            "parent": None,
            "max_model_len": tokens,
        }

    def answer(self, path: str, body: bytes) -> object | None:
        return (
            {"object": "list", "data": [{"id": "another", "object": "model", "max_model_len": 5}, self._card]}
            if path == "/v1/models"
            else None
        )


class LlamaCpp:
    """llama.cpp, with `GET /props`. Its list of models has the window of the training, which is another number."""

    def __init__(self, model: str, tokens: int) -> None:
        self._model, self._tokens = model, tokens

    def answer(self, path: str, body: bytes) -> object | None:
        match path:
            case "/v1/models":
                return {
                    "object": "list",
                    "data": [
                        {"id": self._model, "object": "model", "owned_by": "llamacpp", "meta": {"n_ctx_train": 131072}}
                    ],
                }
            case "/props":
                return {
                    "default_generation_settings": {"n_ctx": self._tokens, "params": {"temperature": 0.8}},
                    "total_slots": 1,
                    "model_path": "/models/small.gguf",
                }
            case _:
                return None


class Ollama:
    """Ollama, with `POST /api/show`, `GET /api/ps`, and `POST /api/generate`.

    `POST /api/generate` without a prompt loads a model. `num_ctx` is the window in the model's own file.
    """

    def __init__(self, model: str, tokens: int, *, num_ctx: int | None = None, is_loaded: bool = False) -> None:
        self._model, self._tokens, self._num_ctx, self._is_loaded = model, tokens, num_ctx, is_loaded

    def answer(self, path: str, body: bytes) -> object | None:
        match path:
            case "/v1/models":
                return {
                    "object": "list",
                    "data": [{"id": self._model, "object": "model", "created": 1, "owned_by": "library"}],
                }
            case "/api/show" if msgspec.json.decode(body)["model"] == self._model:
                parameters = (
                    f'stop                           "<|eot|>"\nnum_ctx                        {self._num_ctx}'
                    if self._num_ctx
                    else 'stop  "<|eot|>"'
                )
                return {
                    "parameters": parameters,
                    "details": {"family": "llama"},
                    "model_info": {"general.architecture": "llama", "llama.context_length": 131072},
                    "capabilities": ["tools"],
                }
            case "/api/generate":
                self._is_loaded = True
                return {
                    "model": self._model,
                    "created_at": "2026-11-17T00:00:00Z",
                    "response": "",
                    "done": True,
                    "done_reason": "load",
                }
            case "/api/ps":
                loaded = {
                    "name": f"{self._model}:latest",
                    "model": f"{self._model}:latest",
                    "size": 1,
                    "digest": "0",
                    "size_vram": 1,
                    "context_length": self._tokens,
                }
                return {"models": [loaded] if self._is_loaded else []}
            case _:
                return None
