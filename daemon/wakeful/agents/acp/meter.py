"""Counts what an external agent spends while it works: by its own reports, and by our estimate of the texts we see.

A program sends its model many requests for one prompt, and each contains the whole conversation so far. Few programs
report single requests. So a request is assumed to begin with the first text or call after all earlier calls have ended.
external_agent.py passes all updates to the meter.
"""

from __future__ import annotations

import json
from typing import Any

from acp import schema
from msgspec import Struct
from msgspec.structs import replace

from wakeful.agents.acp.tool_calls import find_texts
from wakeful.core.agents.model_text import estimate_tokens
from wakeful.core.agents.turns import TokenUsage

# The assumed tokens of a coding agent's own instructions and tools, which it sends with each request. The four programs
# of `make test-acp` send 8,000 to 12,000.
OWN_PROMPT_TOKENS = 10_000
# The spending is recorded again when it has grown by this many tokens, or by this share of the last report, whichever
# is more.
STEP_TOKENS = 2_000
STEP_SHARE = 0.05
# The programs that report only the tokens of the last request of a prompt.
COUNTS_LAST_REQUEST = ("opencode",)
# The programs that count the cost from zero at each start. In the protocol, the cost is that of the whole session.
COUNTS_COST_ANEW = ("claude",)


class _Call(Struct):
    arguments: Any = None
    result: Any = None


class Meter:
    """The meter of one prompt.

    `held_tokens` estimates the size of the program's context when the prompt begins, including the prompt.
    """

    def __init__(self, name: str, held_tokens: int) -> None:
        self._name = name.lower()
        # The tokens of the finished requests (`_input`, `_output`) and of the one under way (`_taken_in`, `_made`).
        self._input = 0
        self._output = 0
        self._taken_in = held_tokens
        self._made = 0
        # The tokens of tool results since the last request. They become input of the next request.
        self._results = 0
        self._open: dict[str, _Call] = {}
        self._over: set[str] = set()
        self._is_between = False
        self.requests = 1
        self._cost: float | None = None
        # The tokens, requests and cost that `take_news` last returned. At the start it has the tokens of the first
        # request, because these are recorded before the prompt is sent.
        self._noted: tuple[int, int, float | None] = (held_tokens, 1, None)

    # -- updates from the program --------------------------------------------------------------

    def see_words(self, text: str) -> None:
        """Count a text that the program says or thinks."""
        self._begin_if_between()
        self._made += estimate_tokens(text)

    def see_call(self, update: Any) -> None:
        """Take an update of a call. Its arguments and result are counted when the call has ended."""
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
        """Count a file that the program read through us, within a call or without one."""
        self._results += estimate_tokens(text)

    def see_usage(self, update: schema.UsageUpdate) -> None:
        """Take a report of the context's size (the last request and its answer), and of the cost if it is in USD."""
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

    # -- totals --------------------------------------------------------------------------------

    @property
    def usage(self) -> TokenUsage:
        """The estimated usage until now."""
        return TokenUsage(input=self._input + self._taken_in, output=self._output + self._made, is_estimated=True)

    def take_news(self, cost_before: float) -> tuple[TokenUsage, float | None] | None:
        """Return the spending until now if it is clearly more than at the last report, else None.

        `cost_before`: see `find_cost`.
        """
        usage, cost = self.usage, self.find_cost(cost_before)
        tokens, requests, known = self._noted
        is_grown = usage.total - tokens >= max(STEP_TOKENS, STEP_SHARE * tokens)
        if not is_grown and requests == self.requests and known == cost:
            return None
        self._noted = (usage.total, self.requests, cost)
        return usage, cost

    def conclude(self, answer: schema.PromptResponse) -> TokenUsage:
        """Return the usage of the whole prompt: the program's report, or else our estimate."""
        told = _read_usage(answer.usage) if answer.usage is not None else _read_quota(answer.field_meta)
        if told is None:
            return self.usage
        if self.requests == 1 or not any(word in self._name for word in COUNTS_LAST_REQUEST):
            return told
        # The program reports only its last request. The difference to our estimate is its own prompt, which we do not
        # see. It is part of every request, so add it to the earlier ones.
        unseen = max(told.input - self._taken_in, -self._input // (self.requests - 1))
        earlier = self._input + unseen * (self.requests - 1)
        return replace(told, input=told.input + earlier, output=told.output + self._output, is_estimated=True)

    @property
    def session_cost(self) -> float | None:
        """The cost that the program last reported. None if it reported no cost."""
        return self._cost

    def find_cost(self, cost_before: float) -> float | None:
        """Return the cost of this prompt in USD, as the program reports it. None if it reports no cost.

        `cost_before` is the last cost that it reported in earlier runs of the same session.
        """
        if self._cost is None:
            return None
        is_anew = self._cost < cost_before or any(word in self._name for word in COUNTS_COST_ANEW)
        return self._cost if is_anew else self._cost - cost_before


def _write(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, default=str)


def _read_usage(usage: schema.Usage) -> TokenUsage:
    # Some programs include cached tokens and thoughts in input and output, some report them in addition. The total
    # minus input and output gives the additional tokens.
    beside = max(usage.total_tokens - usage.input_tokens - usage.output_tokens, 0)
    thoughts = min(usage.thought_tokens or 0, beside)
    taken_in = usage.input_tokens + beside - thoughts
    cached = min(usage.cached_read_tokens or 0, taken_in)
    written = min(usage.cached_write_tokens or 0, taken_in - cached)
    return TokenUsage(input=taken_in, output=usage.output_tokens + thoughts, cached=cached, cache_written=written)


def _read_quota(meta: dict[str, Any] | None) -> TokenUsage | None:
    """Read Gemini's count of a prompt, which it reports outside of the protocol's fields.

    None if it reports no count.
    """
    match meta:
        case {"quota": {"token_count": {"input_tokens": int() as taken_in, "output_tokens": int() as made}}} if (
            taken_in > 0 and made >= 0
        ):
            return TokenUsage(input=taken_in, output=made)
        case _:
            return None
