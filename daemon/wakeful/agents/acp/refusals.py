"""The methods of the Agent Client Protocol that we do not support: terminals, questions and extensions.

We announce no capability for them. An agent that calls one anyway gets the error that the method is unknown. The base
class of `ExternalAgent`.
"""

from __future__ import annotations

from typing import Any, NoReturn

from acp import RequestError, schema
from acp.meta import CLIENT_METHODS


class UnsupportedMethods:
    """Answers each unsupported request with an error, and ignores unsupported notifications."""

    async def create_terminal(
        self,
        session_id: str,
        command: str,
        args: list[str] | None = None,
        env: list[schema.EnvVariable] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
        **_: Any,
    ) -> schema.CreateTerminalResponse:
        _refuse(CLIENT_METHODS["terminal_create"])

    async def terminal_output(self, session_id: str, terminal_id: str, **_: Any) -> schema.TerminalOutputResponse:
        _refuse(CLIENT_METHODS["terminal_output"])

    async def release_terminal(self, session_id: str, terminal_id: str, **_: Any) -> schema.ReleaseTerminalResponse:
        _refuse(CLIENT_METHODS["terminal_release"])

    async def wait_for_terminal_exit(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> schema.WaitForTerminalExitResponse:
        _refuse(CLIENT_METHODS["terminal_wait_for_exit"])

    async def kill_terminal(self, session_id: str, terminal_id: str, **_: Any) -> schema.KillTerminalResponse:
        _refuse(CLIENT_METHODS["terminal_kill"])

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> schema.CreateElicitationResponse:
        _refuse(CLIENT_METHODS["elicitation_create"])

    async def complete_elicitation(self, elicitation_id: str, **_: Any) -> None:
        """No question was asked, so none can have been answered."""

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        _refuse(f"_{method}")

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None:
        """A notification of an extension that we do not know needs no answer."""


def _refuse(method: str) -> NoReturn:
    raise RequestError.method_not_found(method)
