"""The cost of a request, from a table of prices: provider and model -> USD for a million tokens.

The daemon calls `find_cost` when it records an answer, and `find_worst_case` before a request is sent. The table comes
with wakeful, and the prices in wakeful.yaml override it (settings.py).
The functions are pure. A model without a price has an unknown cost; it does not count as free.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

from wakeful.core.agents.turns import TokenUsage
from wakeful.core.spec.budget import Price

_MILLION = 1_000_000
# Two names that are at least this similar, from 0 to 1, may mean the same model.
_LIKENESS = 0.8
# The date at the end of a model's name. The same model is also called without it.
_DATE = re.compile(r"-(\d{8}|\d{4}-\d{2}-\d{2}|latest)$")


Prices = Mapping[str, Price]


def find_price(prices: Prices, model: str) -> Price | None:
    """Find the price of `PROVIDER:NAME`: by its name, by its name without a date,
    then by the longest pattern with a `*` at its end."""
    # Both APIs of OpenAI have the same prices.
    name = model.replace("openai-chat:", "openai:", 1)
    for exact in dict.fromkeys((model, name, _DATE.sub("", name))):
        if (found := prices.get(exact)) is not None:
            return found
    fitting = [one for one in prices if one.endswith("*") and (model.startswith(one[:-1]) or name.startswith(one[:-1]))]
    return prices[max(fitting, key=len)] if fitting else None


def find_meant_model(prices: Prices, model: str) -> str | None:
    """Find the listed model that was probably meant by this name. None if the name is listed, or no name is similar.

    A similar name has the same digits and nearly the same letters, or is the same name at another provider.
    Other digits mean another version."""
    provider, _, name = model.partition(":")
    name = _DATE.sub("", name)
    if find_price(prices, model) is not None:
        return None
    listed = [one for one in prices if not one.endswith("*")]
    if found := next((one for one in listed if one.partition(":")[2] == name), None):
        return found
    house = f"{provider.removesuffix('-chat')}:"
    alike = {one: _measure_likeness(name, one.removeprefix(house)) for one in listed if one.startswith(house)}
    nearest = max(alike, key=alike.__getitem__, default=None)
    return f"{provider}:{nearest.removeprefix(house)}" if nearest is not None and alike[nearest] >= _LIKENESS else None


def _measure_likeness(one: str, other: str) -> float:
    if re.sub(r"\D", "", one) != re.sub(r"\D", "", other):
        return 0.0
    ours, theirs = (re.sub(r"[^a-z]", "", name.lower()) for name in (one, other))
    return difflib.SequenceMatcher(None, ours, theirs, autojunk=False).ratio()


def find_cost(prices: Prices, model: str, usage: TokenUsage) -> float | None:
    """Return the cost of this usage in USD. None if the model has no known price."""
    price = find_price(prices, model)
    if price is None:
        return None
    cached = min(usage.cached, usage.input)
    written = min(usage.cache_written, usage.input - cached)
    per_cached = price.input if price.cached is None else price.cached
    per_written = price.input if price.cache_write is None else price.cache_write
    taken_in = (usage.input - cached - written) * price.input + cached * per_cached + written * per_written
    return (taken_in + usage.output * price.output) / _MILLION


def find_worst_case(prices: Prices, model: str, input_tokens: int, max_output_tokens: int) -> float | None:
    """Return the highest cost of a request: all input at the highest of its prices, and the longest answer."""
    price = find_price(prices, model)
    if price is None:
        return None
    dearest = max(price.input, price.cached or 0.0, price.cache_write or 0.0)
    return (input_tokens * dearest + max_output_tokens * price.output) / _MILLION
