"""The settings that models accept, by the prefixes of their names, as published in November 2026.

A model that is not listed is treated by its provider: for Google like the newest models, for OpenAI like one that does
not reason, for Anthropic like one that thinks by a token budget. If a provider refuses a newer model's request and
names a setting, add the model here. Used by the wire formats.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from wakeful.core.spec.agent import Effort

# --- Anthropic: Claude ---

# The models that decide themselves how much to think, from Sonnet 4.6 and Opus 4.6 on. Older ones take a token budget.
_ADAPTIVE = (
    "claude-fable-5", "claude-mythos-5", "claude-mythos-preview", "claude-sonnet-4-6", "claude-sonnet-5",
    "claude-opus-4-6", "claude-opus-4-7", "claude-opus-4-8", "claude-opus-5", "claude-haiku-5-5",
)  # fmt: skip
# The adaptive models that accept no `effort`, and the adaptive models that accept a temperature.
_WITHOUT_EFFORT = ("claude-mythos-preview",)
_WITH_TEMPERATURE = ("claude-mythos-preview", "claude-sonnet-4-6", "claude-opus-4-6")
# The models that bind a thought to the conversation before it, and refuse the thought if that conversation was changed.
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
    """The reasoning settings of an OpenAI model.

    `keeps_thoughts`: the model also uses thoughts of earlier turns if a request asks for it. `efforts` are the values
    that it accepts, or None if it accepts all.
    """

    reasons: bool = False
    by_default: bool = False
    can_stop: bool = False
    keeps_thoughts: bool = False
    efforts: tuple[OpenAIEffort, ...] | None = None
    has_phases: bool = False

    def find_effort(self, effort: Effort | None) -> OpenAIEffort | None:
        """Return the lowest effort that the model accepts and is not below this one, else its highest."""
        if effort is None or not self.reasons:
            return None
        if self.efforts is None:
            return effort
        wanted = _EFFORTS.index(effort)
        return next((one for one in self.efforts if _EFFORTS.index(one) >= wanted), self.efforts[-1])

    def takes_temperature(self, effort: Effort | None) -> bool:
        """Does the model accept a temperature? Not while it reasons."""
        return not self.reasons or (self.can_stop and not self.by_default and effort is None)


_ALWAYS = OpenAITraits(reasons=True, by_default=True)
_ON_REQUEST = OpenAITraits(reasons=True, can_stop=True)
_MEDIUM_ONLY = OpenAITraits(reasons=True, by_default=True, efforts=("medium",))
_PRO: tuple[OpenAIEffort, ...] = ("medium", "high", "xhigh")
_LOW_TO_HIGH = OpenAITraits(reasons=True, by_default=True, efforts=("low", "medium", "high"))
_GPT_6 = OpenAITraits(reasons=True, by_default=True, can_stop=True, keeps_thoughts=True, has_phases=True)
_GPT_6_ALWAYS = OpenAITraits(reasons=True, by_default=True, keeps_thoughts=True, efforts=_EFFORTS, has_phases=True)

# The traits by the prefix of the name. The first prefix that matches is used.
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
# The models without a level between the lowest and the highest. For every effort below high they use the level given
# here.
_NO_MEDIUM: tuple[tuple[str, str], ...] = (("gemini-3.1-flash-lite-image", "MINIMAL"), ("gemini-3-pro-preview", "LOW"))


class GeminiTraits(Struct, frozen=True):
    """The settings of a Gemini model.

    `shows_results`: results of calls may have images. `lowest`, if set, is the level for every effort below `high`.
    """

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
    """Find the traits of a Gemini model. All models from Gemini 3 on think by levels."""
    is_2_5 = "gemini-2.5" in name
    is_older = "gemini-1" in name or ("gemini-2." in name and not is_2_5) or name == "gemini-pro" or "gemma" in name
    if is_older or "gemini-2.5-flash-image" in name:
        return GeminiTraits("no", shows_results=False)
    if is_2_5:
        return GeminiTraits("budget", shows_results=False)
    lowest = next((level for prefix, level in _NO_MEDIUM if name.startswith(prefix)), None)
    return GeminiTraits("level", shows_results=True, lowest=lowest)
