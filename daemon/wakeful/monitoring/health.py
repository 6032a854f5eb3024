"""The answer of `wakeful health`: whether the daemon is healthy, and each problem with its time and its remedy.

The answer is cheap, because it is requested every few seconds. Everything comes from memory, except one `statvfs` and
two small files of the state folder. `doctor` does the slow checks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from wakeful.core.deciding.working_state import Core
from wakeful.core.looking.observed_state import Looked
from wakeful.core.record.observations import Moment
from wakeful.core.spec.limits import FEW_BYTES, judge_disk_space
from wakeful.monitoring.findings import Finding, Level, Survey, What
from wakeful.monitoring.last_verification import Verified
from wakeful.text.display import count
from wakeful.views.times import show_time, show_time_or_none

# The most findings of each kind that are listed. The rest is counted, so that 10,000 failed sessions fit on one page.
MOST_OF_A_KIND = 20
# The kinds of finding, the most important first.
_ORDER: tuple[What, ...] = (
    "log", "disk", "damaged", "failed", "asks", "trust", "spec", "held", "sleeps", "budget", "notify", "webhook",
    "binding", "defect", "limit", "traces", "gate",
)  # fmt: skip
_RANKS = {what: rank for rank, what in enumerate(_ORDER)}
_LEVELS = {"wrong": 0, "note": 1}


class LogFacts(NamedTuple):
    """The state of the log. `anchor` is None if the anchor cannot be read."""

    position: int
    read_only: str | None
    anchor: int | None
    verified: Verified | None


class DiskFacts(NamedTuple):
    free_bytes: int
    total_bytes: int
    shortage: str | None


class Watches(NamedTuple):
    targets: int
    polled: int
    unseen: int


class Health(NamedTuple):
    """All findings, the worst first."""

    findings: list[Finding]
    survey: Survey
    log: LogFacts
    disk: DiskFacts
    watches: Watches
    refusals: Mapping[str, int]

    # The number of findings of each level. `findings` may have fewer, because the survey limits how many it keeps.
    counts: Mapping[Level, int]

    @property
    def is_healthy(self) -> bool:
        return not self.counts["wrong"]


def judge_health(
    core: Core,
    survey: Survey,
    log: LogFacts,
    disk: DiskFacts,
    *,
    refused_specs: Mapping[str, str],
    defects: Mapping[str, int],
    refusals: Mapping[str, int],
    reported: Iterable[Finding],
) -> Health:
    watches, unseen = _judge_watches(core)
    others = [
        *unseen,
        *_judge_log(log),
        *_judge_disk(disk),
        *(
            Finding(what="spec", words=f"{place}: {words.splitlines()[0]}", mend="wakeful check")
            for place, words in refused_specs.items()
        ),
        *(
            Finding(what="defect", words=f"{words}, {times} times", mend="wakeful doctor")
            for words, times in defects.items()
        ),
        *_judge_refusals(refusals),
        *reported,
    ]
    findings = [*survey.findings, *others]
    findings.sort(key=lambda one: (_LEVELS[one.level], _RANKS[one.what], one.since or 0, one.words))
    counts: dict[Level, int] = {"wrong": 0, "note": 0}
    for (level, _), number in survey.counts.items():
        counts[level] += number
    for one in others:
        counts[one.level] += 1
    return Health(findings, survey, log, disk, watches, refusals, counts)


def narrow_health(health: Health, sees: Callable[[str], bool]) -> Health:
    """Keep only the findings about sessions that a person may see. Findings without a session are dropped, because
    their text may name other sessions."""
    findings = [one for one in health.findings if one.session is not None and sees(one.session)]
    counts: dict[Level, int] = {"wrong": 0, "note": 0}
    for one in findings:
        counts[one.level] += 1
    return health._replace(findings=findings, counts=counts, survey=Survey(), refusals={})


def measure_disk(folder: Path) -> DiskFacts:
    """Measure the disk by one `statvfs`. It does not block, because the state folder is never on a network file
    system."""
    found = os.statvfs(folder)
    free, total = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    return DiskFacts(free, total, judge_disk_space(free, total, is_short=False))


def _judge_watches(core: Core) -> tuple[Watches, list[Finding]]:
    """Find the targets that cannot be seen, and those that are polled because the kernel reports no events for them."""
    looked, found, polled, unseen = core.looked, [], 0, 0
    for look in looked.targets.values():
        if look.problem is None and look.degraded is None:
            continue
        name, binding = _find_subscriber(core, looked, look.target.key, look.subscribers)
        if look.version is None and look.problem is not None:
            # A service that is down still has a version, so a service is never counted here.
            unseen += 1
            words = f"{name} cannot see {binding}: {look.problem}"
            found.append(Finding(what="binding", session=name, words=words, mend=f"wakeful show {name}"))
        elif look.degraded is not None:
            polled += 1
            words = f"{name}, {binding}: {look.degraded}"
            found.append(Finding(what="binding", level="note", session=name, words=words, mend=f"wakeful show {name}"))
    return Watches(len(looked.targets), polled, unseen), found


def _find_subscriber(core: Core, looked: Looked, key: str, subscribers: set[str]) -> tuple[str, str]:
    session_id = min(subscribers)
    bound = next((one.name for one in looked.bounds.get(session_id, ()) if one.target == key), key)
    return core.state.get(session_id).name, bound


def _judge_log(log: LogFacts) -> Iterator[Finding]:
    if log.read_only is not None:
        yield Finding(what="log", words=f"nothing can be recorded: {log.read_only}", mend="wakeful verify")
    if log.anchor is None:
        words = "the anchor of the log cannot be read, so nothing shows that the log is whole"
        yield Finding(what="log", words=words, mend="wakeful doctor")
    verified = log.verified
    if verified is not None and verified.findings:
        words = f"the last verification of the log found {count(verified.findings, 'problem')}"
        yield Finding(what="log", words=words, since=verified.at, mend="wakeful verify")


def _judge_disk(disk: DiskFacts) -> Iterator[Finding]:
    if disk.shortage is not None:
        yield Finding(what="disk", words=f"new runs wait for {disk.shortage}", mend="df -h")
    elif disk.free_bytes < min(FEW_BYTES, disk.total_bytes // 2):
        words = f"{disk.free_bytes / 1e9:.2f} GB are free on the disk of the log"
        yield Finding(what="disk", level="note", words=words, mend="df -h")


def _judge_refusals(refusals: Mapping[str, int]) -> Iterator[Finding]:
    met = {kind: number for kind, number in refusals.items() if number}
    if met:
        told = ", ".join(f"{number} for their {kind.replace('_', ' ')}" for kind, number in sorted(met.items()))
        words = f"requests were refused since the daemon started: {told}"
        yield Finding(what="gate", level="note", words=words)


def view_health(health: Health, moment: Moment, version: str, started_at: int) -> dict[str, Any]:
    """View the health for an identified caller of `GET /health`."""
    shown: list[Finding] = []
    told: dict[tuple[str, str], int] = {}
    for one in health.findings:
        kind = one.level, one.what
        told[kind] = told.get(kind, 0) + 1
        if told[kind] <= MOST_OF_A_KIND:
            shown.append(one)
    survey, log = health.survey, health.log
    return {
        "healthy": health.is_healthy,
        "at": show_time(moment.wall),
        "version": version,
        "started_at": show_time(started_at),
        "findings": [
            {
                "what": one.what,
                "level": one.level,
                "session": one.session,
                "words": one.words,
                "since": show_time_or_none(one.since),
                "mend": one.mend,
            }
            for one in shown
        ],
        "left_out": sum(health.counts.values()) - len(shown),
        "sessions": {
            **dict(sorted(survey.states.items())),
            "queued": survey.queued.total(),
            "failed": survey.failed,
            "asking": survey.asking,
        },
        "log": {
            "position": log.position,
            "anchor": log.anchor,
            "read_only": log.read_only,
            "verified": None
            if log.verified is None
            else {
                "at": show_time(log.verified.at),
                "records": log.verified.records,
                "findings": log.verified.findings,
            },
        },
        "disk": {"free_bytes": health.disk.free_bytes, "total_bytes": health.disk.total_bytes},
        "watches": health.watches._asdict(),
        "refusals": dict(health.refusals),
    }


def encode_brief(health: Health) -> bytes:
    """Encode the answer to an unidentified caller: healthy or not, and nothing else."""
    return msgspec.json.encode({"healthy": health.is_healthy})
