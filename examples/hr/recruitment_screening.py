"""Rank the candidates of a folder against the requirements, with a reason for every point.

The session `recruitment-screening` runs it when a candidate or the requirements change. It also runs by hand. The
shortlist depends on these files alone. The run's output names the new candidates, from the changes that wakeful
reports. The scratch folder keeps the scores of unchanged candidates. No name, age or photo enters a score: a file with
a key that is not listed here is refused.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ledger.records import InputError, gather, publish, read_text, run_program

FOLDER = Path("examples/hr")
CANDIDATES = FOLDER / "candidates"
REQUIREMENTS = FOLDER / "requirements.json"
SHORTLIST = FOLDER / "out" / "shortlist.md"
POINTS_PER_EXTRA_YEAR = 2
COUNTED_EXTRA_YEARS = 5


@dataclass(frozen=True)
class Requirements:
    role: str
    must_have: tuple[str, ...]
    nice_to_have: Mapping[str, int]
    minimum_years: int
    cities: tuple[str, ...]
    salary_ceiling: int
    places: int


@dataclass(frozen=True)
class Candidate:
    reference: str
    years: int
    skills: tuple[str, ...]
    city: str
    expected_salary: int


@dataclass(frozen=True)
class Score:
    """The points with their reasons, or the missing requirements.

    A candidate with a missing requirement has no points.
    """

    points: int
    reasons: tuple[str, ...]
    missing: tuple[str, ...]


class Fields:
    """The keys of one JSON object. The program must read every key with its type, and none may be left over."""

    def __init__(self, path: Path) -> None:
        self.path = path
        text = read_text(path)
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            raise InputError(f"{path}:{error.lineno}: {error.msg} at column {error.colno}; correct the JSON") from None
        if not isinstance(value, dict):
            raise InputError(f"{path}:1: a {type(value).__name__}; expected an object in braces; see its neighbours")
        self.lines = text.splitlines()
        self.left: dict[str, object] = value

    def problem(self, key: str, found: object, expected: str) -> InputError:
        line = next((n for n, line in enumerate(self.lines, start=1) if f'"{key}"' in line), 1)
        return InputError(f"{self.path}:{line}: {key} is {json.dumps(found)}; expected {expected}; correct it")

    def take(self, key: str, expected: str) -> object:
        if key not in self.left:
            raise InputError(f"{self.path}: no {key!r}; expected {expected}; add it")
        return self.left.pop(key)

    def word(self, key: str) -> str:
        value = self.take(key, "some text")
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            raise self.problem(key, value, "some text on one line")
        return value.strip()

    def whole(self, key: str, most: int) -> int:
        value = self.take(key, "a whole number")
        # In Python, bool is a subclass of int, but `true` is not a number of years.
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise self.problem(key, value, f"a whole number from 0 to {most}")
        return value

    def words(self, key: str) -> tuple[str, ...]:
        value = self.take(key, "a list of words")
        if not isinstance(value, list) or not all(isinstance(word, str) and word.isprintable() for word in value):
            raise self.problem(key, value, "a list of words")
        return tuple(sorted({word.strip().lower() for word in value}))

    def weights(self, key: str) -> dict[str, int]:
        value = self.take(key, "words with points")
        if not isinstance(value, dict) or not all(type(points) is int and points > 0 for points in value.values()):
            raise self.problem(key, value, 'words with points, such as {"sql": 5}')
        return {word.strip().lower(): points for word, points in value.items()}

    def finish(self) -> None:
        if self.left:
            unknown = ", ".join(sorted(self.left))
            raise InputError(f"{self.path}: unknown {unknown}; screening uses only what is listed; remove it")


def main() -> None:
    changes = changed_candidates()
    requirements = read_requirements(REQUIREMENTS)
    scores, reused = score_candidates(requirements)
    publish({SHORTLIST: render_shortlist(requirements, scores)})
    print(f"{len(scores)} candidates for {requirements.role}; {reused} scores reused")
    ranking = rank(scores)
    for path, change in sorted(changes.items()):
        reference = path.stem
        if reference not in scores:
            print(f"{change}: {reference}, no longer in the folder")
        elif scores[reference].missing:
            print(f"{change}: {reference}, lacks {', '.join(scores[reference].missing)}")
        else:
            print(f"{change}: {reference}, place {ranking.index(reference) + 1} with {scores[reference].points} points")


def read_requirements(path: Path) -> Requirements:
    fields = Fields(path)
    requirements = Requirements(
        role=fields.word("role"),
        must_have=fields.words("must_have"),
        nice_to_have=fields.weights("nice_to_have"),
        minimum_years=fields.whole("minimum_years", most=60),
        cities=fields.words("cities"),
        salary_ceiling=fields.whole("salary_ceiling", most=10_000_000),
        places=fields.whole("places", most=1000),
    )
    fields.finish()
    return requirements


def read_candidate(path: Path) -> Candidate:
    fields = Fields(path)
    candidate = Candidate(
        reference=path.stem,
        years=fields.whole("years", most=60),
        skills=fields.words("skills"),
        city=fields.word("city").lower(),
        expected_salary=fields.whole("expected_salary", most=10_000_000),
    )
    fields.finish()
    return candidate


def score_candidates(requirements: Requirements) -> tuple[dict[str, Score], int]:
    """Return reference -> score, and how many scores were reused. If files are bad, report all and write nothing."""
    store = score_store()
    kept = read_kept_scores(store)
    # A score depends only on the requirements, this program and the candidate's file, so their digest is its key.
    rules = [REQUIREMENTS.read_bytes(), Path(__file__).read_bytes()]
    scores: dict[str, Score] = {}
    keys: dict[str, str] = {}
    problems: list[str] = []
    for path in sorted(CANDIDATES.glob("*.json")):
        key = digest(*rules, path.name.encode(), path.read_bytes())
        try:
            scores[path.stem] = kept[key] if key in kept else score(read_candidate(path), requirements)
        except InputError as error:
            problems.extend(error.problems)
        keys[key] = path.stem
    if problems:
        raise gather(problems)
    if store is not None:
        publish({store: json.dumps({key: vars(scores[name]) for key, name in keys.items()}, indent=1, sort_keys=True)})
    return scores, sum(key in kept for key in keys)


def digest(*parts: bytes) -> str:
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8) + part)
    return whole.hexdigest()


def score_store() -> Path | None:
    scratch = os.environ.get("WAKEFUL_SCRATCH")
    return Path(scratch) / "scores.json" if scratch else None


def read_kept_scores(store: Path | None) -> dict[str, Score]:
    if store is None or not store.exists():
        return {}
    try:
        return {
            key: Score(kept["points"], tuple(kept["reasons"]), tuple(kept["missing"]))
            for key, kept in json.loads(store.read_bytes()).items()
        }
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        # Only a cache: the files give every score again, so a damaged cache costs only time.
        print(f"{store}: kept scores are unreadable ({error}); scoring everybody again")
        return {}


def score(candidate: Candidate, requirements: Requirements) -> Score:
    missing = [skill for skill in requirements.must_have if skill not in candidate.skills]
    if candidate.years < requirements.minimum_years:
        missing.append(f"{requirements.minimum_years} years (has {candidate.years})")
    if candidate.city not in requirements.cities:
        missing.append(f"a place in {' or '.join(requirements.cities)} (is in {candidate.city})")
    if candidate.expected_salary > requirements.salary_ceiling:
        missing.append(f"a salary within {requirements.salary_ceiling} (expects {candidate.expected_salary})")
    if missing:
        return Score(0, (), tuple(missing))

    counted = min(candidate.years - requirements.minimum_years, COUNTED_EXTRA_YEARS)
    earned = [(skill, points) for skill, points in requirements.nice_to_have.items() if skill in candidate.skills]
    if counted:
        years = "1 year" if counted == 1 else f"{counted} years"
        earned.append((f"{years} beyond the minimum", counted * POINTS_PER_EXTRA_YEAR))
    earned.sort(key=lambda part: (-part[1], part[0]))
    return Score(sum(points for _, points in earned), tuple(f"{what} +{points}" for what, points in earned), ())


def rank(scores: Mapping[str, Score]) -> list[str]:
    """Return the references of the candidates who meet every requirement, best first.

    Equal points are sorted by reference.
    """
    fitting = [reference for reference, score in scores.items() if not score.missing]
    return sorted(fitting, key=lambda reference: (-scores[reference].points, reference))


def render_shortlist(requirements: Requirements, scores: Mapping[str, Score]) -> str:
    ranking = rank(scores)
    lines = [
        f"# Shortlist: {requirements.role}",
        "",
        f"{len(scores)} candidates, {len(ranking)} with everything required, {requirements.places} places.",
        "",
        "| place | candidate | points | reasons |",
        "|--:|---|--:|---|",
    ]
    for place, reference in enumerate(ranking[: requirements.places], start=1):
        reasons = "; ".join(scores[reference].reasons) or "meets the requirements"
        lines.append(f"| {place} | {cell(reference)} | {scores[reference].points} | {cell(reasons)} |")
    behind = ranking[requirements.places :]
    if behind:
        lines += ["", "## Behind", "", *(f"- {cell(name)}: {scores[name].points} points" for name in behind)]
    lacking = {name: score for name, score in sorted(scores.items()) if score.missing}
    if lacking:
        lines += ["", "## Lacking", ""]
        lines += [f"- {cell(name)}: {cell(', '.join(score.missing))}" for name, score in lacking.items()]
    return "\n".join([*lines, ""])


def cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "\\<")


def changed_candidates() -> dict[Path, str]:
    """Return candidate's path -> how it changed, as wakeful reports it. Empty when run by hand."""
    changes: dict[Path, str] = {}
    for path in changed_paths():
        changes[path] = "changed"
    causes = os.environ.get("WAKEFUL_CAUSES")
    if causes:
        for cause in json.loads(Path(causes).read_bytes())["causes"]:
            for entry in cause.get("paths") or ():
                changes[Path(entry["path"])] = entry["change"]
    return {path: change for path, change in changes.items() if is_candidate(path)}


def changed_paths() -> list[Path]:
    changed = os.environ.get("WAKEFUL_CHANGED")
    if not changed:
        return []
    return [Path(os.fsdecode(raw)) for raw in Path(changed).read_bytes().split(b"\0") if raw]


def is_candidate(path: Path) -> bool:
    return path.suffix == ".json" and path.parent.absolute() == CANDIDATES.absolute()


if __name__ == "__main__":
    run_program(main)
