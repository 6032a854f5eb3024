"""Counts what an external agent spends while it works: by what it tells over the protocol,
and by our estimate of what passes through it.

A program sends its model many requests for one prompt, and each of them holds the whole conversation again. Few tell
them one by one, so a request is taken to begin with the first words or call after all calls before it have ended.
agent.py tells the meter what it sees.
"""

from __future__ import annotations

import json
from typing import Any

from acp import schema
from msgspec import Struct
from msgspec.structs import replace

from wakeful.agents.acp.tool_calls import find_texts
from wakeful.core.agents.tokens import estimate_tokens
from wakeful.core.agents.turns import TokenUsage

# The instructions and tools of its own that a coding agent sends with each request:
# 8,000 to 12,000 tokens with the four of `make test-acp`.
OWN_PROMPT_TOKENS = 10_000
# How much more is spent before it is told again, and recorded: as many tokens, or this share of what was spent before.
STEP_TOKENS = 2_000
STEP_SHARE = 0.05
# These count the tokens of the last request of a prompt, and no other.
COUNTS_LAST_REQUEST = ("opencode",)
# The protocol's cost is that of a whole session. These count from zero each time that they are started.
COUNTS_COST_ANEW = ("claude",)


class _Call(Struct):
    arguments: Any = None
    result: Any = None


class Meter:
    """One prompt.

    `held_tokens` is an estimate of what the program has in its context when the prompt begins, the prompt included.
    """

    def __init__(self, name: str, held_tokens: int) -> None:
        self._name = name.lower()
        # Tokens of the requests that are over, and of the request under way.
        self._input = 0
        self._output = 0
        self._taken_in = held_tokens
        self._made = 0
        # Tokens that the next request will hold besides.
        self._results = 0
        self._open: dict[str, _Call] = {}
        self._over: set[str] = set()
        self._is_between = False
        self.requests = 1
        self._cost: float | None = None
        # The tokens that the daemon knows of: those of the first request are on record.
        self._noted: tuple[int, int, float | None] = (held_tokens, 1, None)

    # -- what passes ---------------------------------------------------------------------------

    def see_words(self, text: str) -> None:
        """The program says or thinks something."""
        self._begin_if_between()
        self._made += estimate_tokens(text)

    def see_call(self, update: Any) -> None:
        """A call as it is told: what the model wrote for it is counted with its result, when all of it is known."""
        call = update.tool_call_id
        if call in self._over:
            return
        if call not in self._open:
            self._begin_if_between()
        told = self._open.setdefault(call, _Call())
        told.arguments = update.raw_input or told.arguments
        told.result = update.raw_output or "\n".join(find_texts(update)) or told.result
        if update.status in ("completed", "failed"):
            del self._open[call]
            self._over.add(call)
            self._made += estimate_tokens(_write(told.arguments))
            self._results += estimate_tokens(_write(told.result))
            self._is_between = not self._open

    def see_file(self, text: str) -> None:
        """It read a file through us, within a call or without one."""
        self._results += estimate_tokens(text)

    def see_usage(self, update: schema.UsageUpdate) -> None:
        """The size of its context, which is that of its last request and its answer; and its cost,
        where it tells that in USD."""
        self._begin_if_between()
        self._taken_in = max(update.used - self._made, 0)
        if update.cost is not None and update.cost.currency.upper() == "USD":
            self._cost = update.cost.amount

    def _begin_if_between(self) -> None:
        if not self._is_between:
            return
        self._is_between = False
        self._input += self._taken_in
        self._output += self._made
        self._taken_in, self._made, self._results = self._taken_in + self._made + self._results, 0, 0
        self.requests += 1

    # -- what it comes to ----------------------------------------------------------------------

    @property
    def usage(self) -> TokenUsage:
        """By estimate, until now."""
        return TokenUsage(input=self._input + self._taken_in, output=self._output + self._made, is_estimated=True)

    def take_news(self, cost_before: float) -> tuple[TokenUsage, float | None] | None:
        """The spending until now, if it is clearly more than the last report. `cost_before`: see `find_cost`."""
        usage, cost = self.usage, self.find_cost(cost_before)
        tokens, requests, known = self._noted
        is_grown = usage.total - tokens >= max(STEP_TOKENS, STEP_SHARE * tokens)
        if not is_grown and requests == self.requests and known == cost:
            return None
        self._noted = (usage.total, self.requests, cost)
        return usage, cost

    def conclude(self, answer: schema.PromptResponse) -> TokenUsage:
        """By its own count, else by estimate: nothing is free because nobody counted it."""
        told = _read_usage(answer.usage) if answer.usage is not None else _read_quota(answer.field_meta)
        if told is None:
            return self.usage
        if self.requests == 1 or not any(word in self._name for word in COUNTS_LAST_REQUEST):
            return told
        # The program counts its last request. The count tells how much of each request was its own prompt,
        # which nobody sees.
        unseen = max(told.input - self._taken_in, -self._input // (self.requests - 1))
        earlier = self._input + unseen * (self.requests - 1)
        return replace(told, input=told.input + earlier, output=told.output + self._output, is_estimated=True)

    @property
    def session_cost(self) -> float | None:
        """The cost of its session so far, as it told it. None: it told none."""
        return self._cost

    def find_cost(self, cost_before: float) -> float | None:
        """The cost of this prompt in USD, by the program's own word.

        `cost_before` is what it told last, in an earlier run of the same session.
        """
        if self._cost is None:
            return None
        is_anew = self._cost < cost_before or any(word in self._name for word in COUNTS_COST_ANEW)
        return self._cost if is_anew else self._cost - cost_before


def _write(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, default=str)


def _read_usage(usage: schema.Usage) -> TokenUsage:
    # Some count what was cached and thought within the two, some beside them: what the sum has more is theirs.
    beside = max(usage.total_tokens - usage.input_tokens - usage.output_tokens, 0)
    thoughts = min(usage.thought_tokens or 0, beside)
    taken_in = usage.input_tokens + beside - thoughts
    cached = min(usage.cached_read_tokens or 0, taken_in)
    written = min(usage.cached_write_tokens or 0, taken_in - cached)
    return TokenUsage(input=taken_in, output=usage.output_tokens + thoughts, cached=cached, cache_written=written)


def _read_quota(meta: dict[str, Any] | None) -> TokenUsage | None:
    """Gemini's count of a prompt, which stands beside the protocol's."""
    match meta:
        case {"quota": {"token_count": {"input_tokens": int() as taken_in, "output_tokens": int() as made}}} if (
            taken_in > 0 and made >= 0
        ):
            return TokenUsage(input=taken_in, output=made)
        case _:
            return None
