"""The text of `/metrics`, read by the parsers that Prometheus publishes."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_open
from prometheus_client.parser import text_string_to_metric_families as read_plain

from wakeful.monitoring.metrics_text import Family, Histogram, Sample, counted, single, write_metrics

READERS = pytest.mark.parametrize(("read", "is_open"), [(read_plain, False), (read_open, True)])


@READERS
def test_every_character_of_a_label_and_of_the_help_comes_back(read, is_open: bool) -> None:
    """Quotes, backslashes and line breaks are escaped as each format requires."""
    nasty = 'a"b\\c\nd\\n{},= é 工资'
    text = write_metrics(
        [counted("wakeful_x", "gauge", 'say "x" \\ or\nnot', "session", {nasty: 1.5})], is_open=is_open
    )
    (family,) = read(text)
    assert family.documentation == 'say "x" \\ or\nnot'
    assert [(one.name, one.labels, one.value) for one in family.samples] == [("wakeful_x", {"session": nasty}, 1.5)]


@READERS
def test_a_histogram_is_cumulative_and_ends_in_infinity(read, is_open: bool) -> None:
    """A value equal to a bound belongs to the bucket of that bound."""
    histogram = Histogram((0.1, 1, 10))
    for value in (0.05, 0.1, 0.5, 11.0):
        histogram.add(value)
    samples = list(histogram.list_samples({"kind": "command"}))
    (family,) = read(write_metrics([Family("wakeful_t_seconds", "histogram", "Time.", samples)], is_open=is_open))
    buckets = {one.labels["le"]: one.value for one in family.samples if one.name.endswith("_bucket")}
    assert {float(bound): count for bound, count in buckets.items()} == {0.1: 2, 1.0: 3, 10.0: 3, float("inf"): 4}
    totals = {one.name.rpartition("_")[2]: one.value for one in family.samples if not one.name.endswith("_bucket")}
    assert totals == {"sum": pytest.approx(11.65), "count": 4}


@READERS
def test_counters_end_in_total_and_large_numbers_are_whole(read, is_open: bool) -> None:
    """A family without samples is allowed: its help and type are printed from the start."""
    families = [
        single("wakeful_bytes_total", "counter", "Bytes.", 123456789012),
        Family("wakeful_none_total", "counter", "Nothing yet.", ()),
    ]
    found = {one.name: one for one in read(write_metrics(families, is_open=is_open))}
    assert [(one.name, one.value) for one in found["wakeful_bytes"].samples] == [("wakeful_bytes_total", 123456789012)]
    assert found["wakeful_none"].samples == []


def test_a_name_that_is_no_unicode_can_be_sent() -> None:
    """A lone surrogate becomes a question mark."""
    text = write_metrics([Family("x", "gauge", "X.", [Sample(1, {"a": "b\udc80"})])], is_open=False)
    assert 'x{a="b?"} 1' in text.encode().decode()
