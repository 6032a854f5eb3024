"""The settings that models accept, by the beginnings of their names: as published in November 2026.

A model that is not listed is taken for one that thinks only as its provider's newest do by default, or not at all. A
newer model that needs another line here answers with a refusal that names the setting. The wire formats ask.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from wakeful.core.spec.agent import Effort

# --- Anthropic: Claude ---

# Models that decide themselves how much to think, from Sonnet 4.6 and Opus 4.6 on; older ones take a number of tokens.
_ADAPTIVE = (
    "claude-fable-5", "claude-mythos-5", "claude-mythos-preview", "claude-sonnet-4-6", "claude-sonnet-5",
    "claude-opus-4-6", "claude-opus-4-7", "claude-opus-4-8", "claude-opus-5", "claude-haiku-5-5",
)  # fmt: skip
# Of these, the ones that take no `effort`, and those that take a temperature.
_WITHOUT_EFFORT = ("claude-mythos-preview",)
_WITH_TEMPERATURE = ("claude-mythos-preview", "claude-sonnet-4-6", "claude-opus-4-6")
# Models that tie a thought to the conversation that led to it, and refuse it where that was changed since.
_BINDING = ("claude-fable-5-1", "claude-opus-5-5", "claude-sonnet-5-5", "claude-haiku-5-5")


class ClaudeTraits(Struct, frozen=True):
    is_adaptive: bool
    takes_effort: bool
    takes_temperature: bool
    binds_thoughts: bool


def find_claude(name: str) -> ClaudeTraits:
    is_adaptive = name.startswith(_ADAPTIVE)
    return ClaudeTraits(
        is_adaptive=is_adaptive,
        takes_effort=is_adaptive and not name.startswith(_WITHOUT_EFFORT),
        takes_temperature=not is_adaptive or name.startswith(_WITH_TEMPERATURE),
        binds_thoughts=name.startswith(_BINDING),
    )


# --- OpenAI: which models reason ---

OpenAIEffort = Literal["low", "medium", "high", "xhigh"]
_EFFORTS: tuple[OpenAIEffort, ...] = ("low", "medium", "high", "xhigh")


class OpenAITraits(Struct, frozen=True, kw_only=True):
    """`keeps_thoughts`: thoughts of earlier turns are used as well where a request asks for it.

    `efforts` are those that it accepts; None: all that we know."""

    reasons: bool = False
    by_default: bool = False
    can_stop: bool = False
    keeps_thoughts: bool = False
    efforts: tuple[OpenAIEffort, ...] | None = None
    has_phases: bool = False

    def find_effort(self, effort: Effort | None) -> OpenAIEffort | None:
        """The lowest that it accepts from this one on, else the highest."""
        if effort is None or not self.reasons:
            return None
        if self.efforts is None:
            return effort
        wanted = _EFFORTS.index(effort)
        return next((one for one in self.efforts if _EFFORTS.index(one) >= wanted), self.efforts[-1])

    def takes_temperature(self, effort: Effort | None) -> bool:
        """None while it reasons."""
        return not self.reasons or (self.can_stop and not self.by_default and effort is None)


_ALWAYS = OpenAITraits(reasons=True, by_default=True)
_ON_REQUEST = OpenAITraits(reasons=True, can_stop=True)
_MEDIUM_ONLY = OpenAITraits(reasons=True, by_default=True, efforts=("medium",))
_PRO: tuple[OpenAIEffort, ...] = ("medium", "high", "xhigh")
_LOW_TO_HIGH = OpenAITraits(reasons=True, by_default=True, efforts=("low", "medium", "high"))
_GPT_6 = OpenAITraits(reasons=True, by_default=True, can_stop=True, keeps_thoughts=True, has_phases=True)
_GPT_6_ALWAYS = OpenAITraits(reasons=True, by_default=True, keeps_thoughts=True, efforts=_EFFORTS, has_phases=True)

# The first that a name begins with counts.
_OPENAI: tuple[tuple[str, OpenAITraits], ...] = (
    ("gpt-6-astra", _GPT_6_ALWAYS),
    ("gpt-6.1-sol", _GPT_6_ALWAYS),
    ("gpt-6.1-terra", _GPT_6),
    ("gpt-6-sol", _GPT_6),
    ("gpt-6-luna", _GPT_6),
    ("gpt-5.6", _GPT_6),
    ("gpt-5.5-pro", OpenAITraits(reasons=True, by_default=True, keeps_thoughts=True, efforts=_PRO, has_phases=True)),
    ("gpt-5.5", _GPT_6),
    ("gpt-5.4-pro", OpenAITraits(reasons=True, by_default=True, keeps_thoughts=True, efforts=_PRO, has_phases=True)),
    ("gpt-5.4", OpenAITraits(reasons=True, can_stop=True, keeps_thoughts=True, has_phases=True)),
    ("gpt-5.3-chat", _MEDIUM_ONLY),
    ("gpt-5.3-codex", OpenAITraits(reasons=True, can_stop=True, has_phases=True)),
    ("gpt-5.3", _ON_REQUEST),
    ("gpt-5.2-pro", OpenAITraits(reasons=True, by_default=True, efforts=_PRO)),
    ("gpt-5.2-chat", _MEDIUM_ONLY),
    ("gpt-5.2", _ON_REQUEST),
    ("gpt-5.1-codex", _ALWAYS),
    ("gpt-5.1-chat", _MEDIUM_ONLY),
    ("gpt-5.1", _ON_REQUEST),
    ("gpt-5-chat", OpenAITraits()),
    ("gpt-5-pro", OpenAITraits(reasons=True, by_default=True, efforts=("high",))),
    ("gpt-5-codex", _ALWAYS),
    ("gpt-5", _LOW_TO_HIGH),
    ("o1", _LOW_TO_HIGH),
    ("o3", _LOW_TO_HIGH),
    ("o4", _LOW_TO_HIGH),
)


def find_openai(name: str) -> OpenAITraits:
    return next((traits for prefix, traits in _OPENAI if name.startswith(prefix)), OpenAITraits())


# --- Google: Gemini ---

_BUDGETS: dict[Effort, int] = {"low": 2_048, "medium": 8_192, "high": 24_576}
_LEVELS: dict[Effort, str] = {"low": "LOW", "medium": "MEDIUM", "high": "HIGH"}
# Models without a level between the lowest and the highest: medium is rounded down.
_NO_MEDIUM: tuple[tuple[str, str], ...] = (("gemini-3.1-flash-lite-image", "MINIMAL"), ("gemini-3-pro-preview", "LOW"))


class GeminiTraits(Struct, frozen=True):
    """`shows_results`: results of calls may hold images. `lowest` is the level for every effort below `high`."""

    thinks: Literal["no", "budget", "level"]
    shows_results: bool
    lowest: str | None = None

    def find_thinking(self, effort: Effort | None) -> dict[str, object] | None:
        if effort is None or self.thinks == "no":
            return None
        if self.thinks == "budget":
            return {"includeThoughts": True, "thinkingBudget": _BUDGETS[effort]}
        level = self.lowest if self.lowest is not None and effort != "high" else _LEVELS[effort]
        return {"includeThoughts": True, "thinkingLevel": level}


def find_gemini(name: str) -> GeminiTraits:
    """Everything from Gemini 3 on thinks by levels."""
    is_2_5 = "gemini-2.5" in name
    is_older = "gemini-1" in name or ("gemini-2." in name and not is_2_5) or name == "gemini-pro" or "gemma" in name
    if is_older or "gemini-2.5-flash-image" in name:
        return GeminiTraits("no", shows_results=False)
    if is_2_5:
        return GeminiTraits("budget", shows_results=False)
    lowest = next((level for prefix, level in _NO_MEDIUM if name.startswith(prefix)), None)
    return GeminiTraits("level", shows_results=True, lowest=lowest)
