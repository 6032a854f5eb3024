"""The text formats of Prometheus: 0.0.4, and OpenMetrics 1.0 if a scraper requests it.

Pure: values in, text out. The name of a metric contains its unit (`_seconds`, `_bytes`). The name of a counter ends in
`_total`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

PLAIN_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPEN_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"

Labels = Mapping[str, str]
_NO_LABELS: Labels = {}


class Sample(NamedTuple):
    value: float
    labels: Labels = _NO_LABELS
    # Appended to the family's name: `_bucket`, `_sum` and `_count` of a histogram.
    suffix: str = ""


class Family(NamedTuple):
    """All samples of one name. The name of a counter ends in `_total`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    words: str
    samples: Sequence[Sample]


class Histogram:
    """Counts values by size. `bounds` are the upper ends of the buckets, ascending. One more bucket has no upper
    end."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def list_samples(self, labels: Labels = _NO_LABELS) -> Iterator[Sample]:
        total = 0
        for bound, count in zip((*self._bounds, float("inf")), self._counts, strict=True):
            total += count
            yield Sample(total, {**labels, "le": _say_number(bound)}, "_bucket")
        yield Sample(self._sum, labels, "_sum")
        yield Sample(total, labels, "_count")


def single(name: str, kind: Literal["counter", "gauge"], words: str, value: float) -> Family:
    return Family(name, kind, words, (Sample(value),))


def counted(
    name: str, kind: Literal["counter", "gauge"], words: str, label: str, counts: Mapping[Any, float]
) -> Family:
    """Make a family with one sample for each value of one label."""
    return Family(name, kind, words, [Sample(value, {label: word}) for word, value in sorted(counts.items())])


def write_metrics(families: Iterable[Family], *, is_open: bool) -> str:
    """Write the whole page. If `is_open`, the format is OpenMetrics, which ends with `# EOF`."""
    lines: list[str] = []
    for family in families:
        # In OpenMetrics the family of a counter is named without `_total`.
        told = family.name.removesuffix("_total") if is_open and family.kind == "counter" else family.name
        lines += (f"# HELP {told} {_escape_help(family.words, is_open=is_open)}", f"# TYPE {told} {family.kind}")
        for sample in family.samples:
            lines.append(f"{family.name}{sample.suffix}{_write_labels(sample.labels)} {_say_number(sample.value)}")
    if is_open:
        lines.append("# EOF")
    return "\n".join(lines) + "\n"


def _write_labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape_value(value)}"' for name, value in labels.items()) + "}"


def _escape_value(text: str) -> str:
    # A lone surrogate, from a file name that is not UTF-8, cannot be encoded.
    text = text.encode(errors="replace").decode()
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _escape_help(text: str, *, is_open: bool) -> str:
    escaped = text.replace("\\", "\\\\").replace("\n", "\\n")
    return escaped.replace('"', '\\"') if is_open else escaped


def _say_number(value: float) -> str:
    if value == float("inf"):
        return "+Inf"
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e15):
        return str(int(value))
    return repr(value)
