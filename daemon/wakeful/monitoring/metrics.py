"""The metrics that come from the state and the process. measures.py has the counters. Pure, except for reading /proc.

Names follow Prometheus: base units, `_total` for counters, `process_` for the usual figures of a process. A session is
a label only if `metrics: {sessions: […]}` in wakeful.yaml names it, and for at most `MOST_SESSIONS`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from wakeful.core.deciding.working_state import Core
from wakeful.core.record.lifecycle_stages import name_state
from wakeful.core.record.state import Session
from wakeful.monitoring.health import Health
from wakeful.monitoring.metrics_text import Family, Sample, counted, single
from wakeful.views.session_rows import FAILURES

MOST_SESSIONS = 500
STATES = ("suspended", "running", "sleeping", "terminated", "archived")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")


def list_state_families(core: Core, health: Health, version: str, started_at: int) -> Iterator[Family]:
    """Yield the current values of the daemon, and the refused requests."""
    survey = health.survey
    yield Family("wakeful_build_info", "gauge", "The version of the daemon.", (Sample(1, {"version": version}),))
    yield single("wakeful_start_time_seconds", "gauge", "When the daemon started, since 1970.", started_at / 1e6)
    yield single("wakeful_healthy", "gauge", "1 if nothing needs a person (wakeful health).", int(health.is_healthy))
    yield counted(
        "wakeful_findings",
        "gauge",
        "Findings of wakeful health.",
        "level",
        {str(one): count for one, count in health.counts.items()},
    )
    states = {state: survey.states[state] for state in STATES}
    yield counted("wakeful_sessions", "gauge", "Sessions by state.", "state", states)
    yield single("wakeful_sessions_failed", "gauge", "Sessions that sleep because their runs failed.", survey.failed)
    yield single("wakeful_sessions_asking", "gauge", "Sessions that wait for a person's answer.", survey.asking)
    queued = {kind: survey.queued[kind] for kind in ("command", "agent")}
    yield counted("wakeful_queue_length", "gauge", "Wakes that wait for their run.", "kind", queued)
    slots = core.view_slots()
    yield counted(
        "wakeful_slots_used", "gauge", "Runs under way.", "kind", {kind: one["used"] for kind, one in slots.items()}
    )
    yield counted(
        "wakeful_slots",
        "gauge",
        "Runs that may be under way.",
        "kind",
        {kind: one["of"] for kind, one in slots.items()},
    )
    yield single("wakeful_log_position", "gauge", "The position of the newest record.", health.log.position)
    if health.log.anchor is not None:
        yield single("wakeful_log_anchor_position", "gauge", "The position in the anchor.", health.log.anchor)
    if health.log.verified is not None:
        yield single(
            "wakeful_log_verified_time_seconds",
            "gauge",
            "When the log was last verified, since 1970.",
            health.log.verified.at / 1e6,
        )
    yield single("wakeful_disk_free_bytes", "gauge", "Free bytes on the disk of the log.", health.disk.free_bytes)
    yield single("wakeful_disk_size_bytes", "gauge", "The size of the disk of the log.", health.disk.total_bytes)
    watches = health.watches
    yield counted(
        "wakeful_targets",
        "gauge",
        "Targets of bindings: watched, polled, or not visible.",
        "how",
        {
            "watched": watches.targets - watches.polled - watches.unseen,
            "polled": watches.polled,
            "unseen": watches.unseen,
        },
    )
    yield counted(
        "wakeful_refusals_total", "counter", "Requests that were refused, by reason.", "reason", health.refusals
    )


def list_session_families(core: Core, patterns: Sequence[str]) -> Iterator[Family]:
    """Yield the metrics of the sessions that the settings name. These metrics come from the log, so a restart does not
    reset them."""
    if not patterns:
        return
    chosen = _choose(core, patterns)
    yield Family(
        "wakeful_session_runs_total",
        "counter",
        "Runs of this session that ended for good, by outcome.",
        [
            Sample(count, {"session": one.name, "outcome": outcome})
            for one in chosen
            for outcome, count in (("succeeded", one.tally.successes), ("failed", one.tally.failures))
        ],
    )
    yield Family(
        "wakeful_session_running",
        "gauge",
        "1 while this session runs.",
        [Sample(int(name_state(one, is_held=False) == "running"), {"session": one.name}) for one in chosen],
    )
    ended = [(one.name, one.last_run) for one in chosen if one.last_run is not None]
    yield Family(
        "wakeful_session_last_run_failed",
        "gauge",
        "1 if the last run of this session failed.",
        [Sample(int(last.outcome in FAILURES), {"session": name}) for name, last in ended],
    )
    yield Family(
        "wakeful_session_last_run_time_seconds",
        "gauge",
        "When the last run of this session ended, since 1970.",
        [Sample(last.finished_at / 1e6, {"session": name}) for name, last in ended],
    )


def _choose(core: Core, patterns: Sequence[str]) -> list[Session]:
    plain = [core.state.ids[one] for one in patterns if one in core.state.ids]
    globs = [one for one in patterns if any(mark in one for mark in "*?[")]
    found = dict.fromkeys(plain)
    if globs:
        found |= dict.fromkeys(one.id for one in core.state if any(fnmatchcase(one.name, pattern) for pattern in globs))
    chosen = sorted((core.state.get(one) for one in found), key=lambda one: one.name)
    return chosen[:MOST_SESSIONS]


def list_process_families(pid: int) -> Iterator[Family]:
    """Yield the kernel's figures of the daemon's own process."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        # The fields after the process name, which is in parentheses and may contain spaces.
        fields = file.read().rpartition(")")[2].split()
    user, system, threads, started, size, resident = (int(fields[place]) for place in (11, 12, 17, 19, 20, 21))
    yield single("process_cpu_seconds_total", "counter", "CPU time of the daemon.", (user + system) / _TICKS)
    yield single("process_resident_memory_bytes", "gauge", "Memory of the daemon.", resident * _PAGE_BYTES)
    yield single("process_virtual_memory_bytes", "gauge", "Address space of the daemon.", size)
    yield single("process_threads", "gauge", "Threads of the daemon.", threads)
    yield single("process_open_fds", "gauge", "Open descriptors of the daemon.", len(os.listdir(f"/proc/{pid}/fd")))
    most = _read_most_descriptors(pid)
    if most is not None:
        yield single("process_max_fds", "gauge", "The most descriptors that it may have open.", most)
    booted = _read_boot_time()
    if booted is not None:
        yield single(
            "process_start_time_seconds", "gauge", "When the process started, since 1970.", booted + started / _TICKS
        )


def _read_most_descriptors(pid: int) -> int | None:
    with open(f"/proc/{pid}/limits", encoding="ascii", errors="replace") as lines:
        found = next((line.split() for line in lines if line.startswith("Max open files")), None)
    return int(found[3]) if found is not None and found[3].isdigit() else None


def _read_boot_time() -> int | None:
    with open("/proc/stat", encoding="ascii", errors="replace") as lines:
        found = next((line.split()[1] for line in lines if line.startswith("btime ")), None)
    return int(found) if found is not None else None
