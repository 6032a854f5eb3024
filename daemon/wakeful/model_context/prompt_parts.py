"""The named parts of a model's context, with their estimated tokens, and the most tokens of each part.

It is a module of its own because changes.py, run_opening.py and assemble.py use it, and import each other in this
order.
"""

from __future__ import annotations

from msgspec import Struct

from wakeful.core.agents.model_text import estimate_tokens
from wakeful.core.spec.agent import AgentSpec


class Part(Struct, frozen=True):
    """A named piece of text. `tokens` is an estimate."""

    name: str
    text: str
    tokens: int

    @classmethod
    def of(cls, name: str, text: str) -> Part:
        return cls(name, text, estimate_tokens(text))


class Room(Struct, frozen=True, kw_only=True):
    """The most tokens of each part.

    The prompt, the objective and the agent's role are never cut, so they have no limit.
    """

    rules: int
    facts: int
    handoff: int
    changes: int
    paths: int
    summary: int
    memory: int
    messages: int

    @classmethod
    def of(cls, agent: AgentSpec) -> Room:
        """Give each part a share of the model's window, up to a useful size. Together the shares are at most 72 %."""
        tokens = agent.window.tokens

        def share(part: float, most: int) -> int:
            return min(int(tokens * part), most)

        return cls(
            rules=share(0.12, 10_000),
            facts=share(0.12, 8_000),
            handoff=share(0.06, 4_000),
            # About 24 KB of diffs.
            changes=share(0.12, 7_000),
            paths=share(0.04, 2_000),
            summary=share(0.10, 8_000),
            memory=share(0.04, 2_000),
            messages=share(0.12, 12_000),
        )
