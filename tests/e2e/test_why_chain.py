"""`why` through a whole chain of real runs: they write files for others, send messages, and people activate them."""

from __future__ import annotations

from e2e.box import Box
from e2e.test_graph import diamond


def test_why_walks_a_diamond_to_the_file_somebody_saved(box: Box) -> None:
    """The chain has all four runs, each once, with causes, versions and cost. The last link came from outside."""
    diamond(box)
    box.start()
    box.wait_at_rest("bottom", runs=1)
    box.write("a.txt", "2\n")
    box.wait_at_rest("bottom", runs=2)
    links = box.json("why", "bottom#2")["links"]
    assert sorted((link["session"], link["run"]) for link in links) == [
        ("bottom", 2),
        ("left", 2),
        ("right", 2),
        ("top", 2),
    ]
    assert {origin["session"] for origin in links[0]["led_by"]} == {"left", "right"}
    top = next(link for link in links if link["session"] == "top")
    assert top["led_by"] == [
        {"parent": None, "session": None, "run": None, "kind": None, "author": None, "words": top["words"][-1]}
    ]
    assert (
        top["causes"][0]["paths"] == [{"path": "a.txt", "change": "modified"}]
        and top["versions"]["input"] == top["causes"][0]["new"]
    )
    assert all(link["usage"]["wall_seconds"] > 0 and link["outcome"] == "succeeded" for link in links)
    text = box.ask("why", "bottom", "--run", "2")
    assert (
        "1. bottom#2 succeeded" in text
        and "from outside" in text
        and all(len(line) <= 80 for line in text.splitlines())
    )
    assert "left#2" in box.words("why", "l.txt") and "top#2" in box.words("why", "l.txt")


def test_why_walks_from_a_message_to_who_asked_for_it(box: Box) -> None:
    """A person activates one session, and its run sends a message to another.

    The chain of that one ends at the person, also after kill -9.
    """
    box.spec(
        "asker", "run: {command: [wakeful, send, answerer, please]}\nfirst: adopt\nbindings: {input: {file: a.txt}}\n"
    )
    box.spec("answerer", "run: {command: ['true']}\nfirst: adopt\nbindings: {input: {file: a.txt}}\n")
    box.start()
    box.ask("activate", "asker", "--wait")
    box.wait_at_rest("answerer", runs=1)
    links = box.json("why", "answerer")["links"]
    assert [(link["session"], link["run"]) for link in links] == [("answerer", 1), ("asker", 1)]
    assert links[1]["led_by"][0]["kind"] == "activation_requested" and links[1]["led_by"][0]["author"].startswith(
        "person:"
    )
    box.kill()
    box.start()
    assert box.json("why", "answerer#1")["links"] == links
    refused = box.run("why", "answerer#2")
    assert refused.returncode == 1 and "answerer has no run 2; it has run once" in refused.stderr
