"""Lists in pages: a limit, a cursor, a link to the next page, and filters that the daemon applies."""

import re

import pytest

from api.conftest import Reply, Speaker, segment
from api.small_daemon import RunningDaemon, declare, reads


@pytest.fixture(autouse=True)
def many(daemon: RunningDaemon) -> None:
    """Declare five sessions in three folders and let each run once. One run fails."""
    specs = [
        declare(name, reads("input", f"{place}.csv"), tags=tags, objective=f"Number {place}.")
        for place, (name, tags) in enumerate(
            [("hr/a", ("money",)), ("hr/b", ()), ("hr/tax/c", ("money", "law")), ("hrx", ()), ("shop/d", ("money",))]
        )
    ]
    for spec in specs:
        daemon.do(lambda small, spec=spec: small.declare(spec))
        daemon.do(lambda small, spec=spec: small.finish(spec.name, exit_code=1 if spec.name == "hr/b" else 0))


def next_of(reply: Reply) -> str | None:
    found = re.fullmatch(r'<(.*)>; rel="next"', reply.headers.get("link", ""))
    assert (found is None) == ("wakeful-cursor" not in reply.headers)
    return found[1] if found is not None else None


def read_pages(speaker: Speaker, target: str) -> list[Reply]:
    pages = []
    following: str | None = target
    while following is not None:
        pages.append(speaker.get(following))
        assert pages[-1].status == 200, pages[-1].body
        following = next_of(pages[-1])
    return pages


def names(reply: Reply) -> list[str]:
    return [row["name"] for row in reply.json]


def test_sessions_come_in_pages(speaker: Speaker) -> None:
    """Each session comes once, ordered by name. Each page has its position."""
    pages = read_pages(speaker, "/sessions?limit=2")
    assert [names(page) for page in pages] == [["hr/a", "hr/b"], ["hr/tax/c", "hrx"], ["shop/d"]]
    assert all(int(page.headers["wakeful-position"]) > 0 for page in pages)
    assert len(read_pages(speaker, "/sessions?limit=5")) == 1
    cursor = pages[0].headers["wakeful-cursor"]
    assert names(speaker.get(f"/sessions?cursor={cursor}")) == ["hr/tax/c", "hrx", "shop/d"]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("tag=money", ["hr/a", "hr/tax/c", "shop/d"]),
        ("tag=money&tag=law", ["hr/tax/c"]),
        ("folder=hr", ["hr/a", "hr/b", "hr/tax/c"]),
        ("folder=hr/tax", ["hr/tax/c"]),
        ("text=NUMBER%204", ["shop/d"]),
        ("text=law", ["hr/tax/c"]),
        ("failed=true", ["hr/b"]),
        ("state=failed", ["hr/b"]),
        ("asks=true", []),
        ("state=suspended&folder=shop", ["shop/d"]),
        ("folder=nowhere", []),
    ],
)
def test_sessions_are_chosen_by_the_daemon(speaker: Speaker, query: str, found: list[str]) -> None:
    """A session must match all filters. The pages keep the filters."""
    assert names(speaker.get(f"/sessions?{query}")) == found
    assert [name for page in read_pages(speaker, f"/sessions?{query}&limit=1") for name in names(page)] == found


def test_a_log_comes_in_pages(daemon: RunningDaemon, speaker: Speaker) -> None:
    """The log is paged from its beginning, also where a filter leaves out most of it."""
    for number in range(7):
        speaker.call("note", name="hr/a", text=f"note {number}")
    target = f"/sessions/{segment('hr/a')}/log"
    whole = speaker.get(target).lines
    pages = read_pages(speaker, f"{target}?limit=3")
    assert [line for page in pages for line in page.lines] == whole and len(pages) == -(-len(whole) // 3)
    notes = read_pages(speaker, f"{target}?kind=note_added&limit=3")
    assert [len(page.lines) for page in notes] == [3, 3, 1]
    assert speaker.get(f"{target}?limit=3&last=2").status == 400


def test_finds_come_in_pages_that_later_records_do_not_move(speaker: Speaker) -> None:
    """The newest match comes first. The next page continues where this one ended."""
    for number in range(5):
        speaker.call("note", name="hr/a", text=f"quarterly {number}")
    first = speaker.get("/search?text=quarterly&limit=2")
    speaker.call("note", name="hr/a", text="quarterly, later")
    following = next_of(first)
    assert following is not None
    pages = [first, *read_pages(speaker, following)]
    texts = [line["payload"]["text"] for page in pages for line in page.lines]
    assert texts == [f"quarterly {number}" for number in (4, 3, 2, 1, 0)]


@pytest.mark.parametrize(
    "target",
    [
        "/sessions?limit=0",
        "/sessions?limit=x",
        "/sessions?cursor=x",
        "/sessions?cursor=%C3%A4",
        "/search?text=a&cursor=IjEi",
    ],
)
def test_a_wrong_page_is_refused_in_words(speaker: Speaker, target: str) -> None:
    refused = speaker.get(target)
    assert refused.status == 400 and ("limit" in refused.error or "cursor" in refused.error)
