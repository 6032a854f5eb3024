"""A project full of real sessions for the dashboard: files, commits, clocks, templates, agents, questions and failures.

The browser tests and `make screenshots` share it. All sessions really run; only the model is scripted.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from agents.provider import Call, Provider, Route, Routes, Say, Slow, Usage
from agents.provider import Reply as ModelReply
from e2e.box import Box
from git_repository import git

REPOSITORY = Path(__file__).parents[2]
KEY = {"WAKEFUL_SECRET_ANTHROPIC_API_KEY": "sk-secret-canary-0001"}

GUIDE = """# Payroll API

`pay(month)` computes one month. `file(city)` writes the filing of a city.
"""
SECURITY = "I looked at every route. Two of them take a path from outside; both normalise it before they open it."

# Sessions of the repository's own examples, with the place of their spec below sessions.d/.
EXAMPLES = {
    "payroll": "hr/payroll",
    "social-insurance-filing": "hr/social-insurance-filing",
    "recruitment-screening": "hr/recruitment-screening",
    "heartbeat": "ops/heartbeat",
}
SPECS = {
    "docs/api-docs": """
        agent: docs
        objective: Keep the API page true to the committed code.
        priority: 30
        bindings:
          code: {commits: src/, repo: site}
          page: {file: site/out/api.md, access: write}
        run:
          script: |
            mkdir -p site/out
            { echo '# API'; grep -h '^def' site/src/*.py; } > site/out/api.md
            printf '\\033[32mrendered\\033[0m %s routes\\n' "$(grep -c '^def' site/src/routes.py)"
    """,
    "docs/guide": """
        agent: docs
        objective: Keep a guide that a newcomer can read in ten minutes.
        bindings:
          page: {file: site/out/api.md, missing: wait}
          guide: {file: site/out/guide.md, access: write}
        run: {prompt: Bring the guide in line with the API page.}
        budget: {run: {usd: 0.50}, day: {usd: 2.00, runs: 40}}
    """,
    "docs/release-notes": """
        agent: docs
        objective: Write release notes once a maintainer agrees to the range.
        first: run
        bindings:
          notes: {file: site/out/notes.md, access: write}
          weekly: {cron: "0 9 * * 1", timezone: Europe/Berlin}
        run: {prompt: Write the release notes.}
    """,
    "ops/deploy": """
        objective: Put the site on the server when the page changed.
        approve: before_run
        priority: 90
        bindings:
          page: {file: site/out/api.md, missing: wait}
        run: {script: "echo deployed"}
    """,
    "ops/nightly-backup": """
        objective: Copy the ledgers to the other disk every night.
        first: run
        bindings:
          night: {cron: "0 3 * * *", timezone: Europe/Berlin}
        run:
          script: |
            echo 'copying 214 files'
            printf '\\033[31mrsync: connection refused (111)\\033[0m\\n' >&2
            exit 12
          retries: 0
    """,
    "ops/price-watch": """
        objective: Notice when a supplier changes a price.
        bindings:
          list: {file: prices.csv}
        run: {script: "wc -l prices.csv"}
    """,
    "reports/quarter": """
        objective: Recompute the quarter from every ledger.
        priority: 70
        bindings:
          ledgers: {file: "ledgers/*.csv"}
        run:
          script: |
            for i in $(seq 1 900); do printf '\\033[2m%s\\033[0m ledger %s of 900\\n' "$(date +%T)" "$i"; sleep 1; done
    """,
    "ticket@": """
        for_each: tickets/*.md
        objective: Answer {stem}.
        bindings:
          ticket: {file: "{path}"}
        run: {command: [wc, -w, "{path}"]}
    """,
}


def script_model() -> Routes:
    """Return one script for each session, chosen by words of its prompt.

    The last one sends its answer slowly, in pieces.
    """
    usage = Usage(input=4200, output=380)
    return Routes(
        (
            Route(
                (
                    Call("read", {"path": "site/out/api.md"}),
                    Call("write", {"path": "site/out/guide.md", "content": GUIDE}),
                    Call("remember", {"key": "audience", "value": "newcomers", "because": "the objective says so"}),
                    ModelReply((Say("The guide names every route of the page."),), usage=usage),
                ),
                shows="Bring the guide in line",
                by="message",
            ),
            Route(
                (
                    Call(
                        "ask_person",
                        {
                            "question": "Which range should the notes cover: since v1.4, or since the last release candidate?"
                        },
                    ),
                    ModelReply((Say("Then I write them since v1.4."),), usage=usage),
                ),
                shows="Write the release notes",
            ),
            Route((ModelReply((Say(SECURITY),), usage=usage),), shows="You look for holes", by="message"),
            Route((Slow(between=0.02, then=Say("Both, and the page says which.")),), by="message"),
        )
    )


class House:
    """The box, its files and its model. `build` writes all of them; `live` makes a history."""

    def __init__(self, folder: Path, provider: Provider) -> None:
        self.box = Box(folder)
        self.provider = provider
        provider.play(script_model())

    def build(self) -> Box:
        box = self.box
        shutil.copytree(
            REPOSITORY / "examples",
            box.folder / "examples",
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("out", "__pycache__"),
        )
        agents = box.specs / "agents"
        agents.mkdir(exist_ok=True)
        prompts = {"docs": "You write documentation.", "hr": "You keep the payroll.", "security": "You look for holes."}
        for name, prompt in prompts.items():
            (agents / f"{name}.yaml").write_text(
                f"prompt: {prompt}\nmodel: anthropic:claude-sonnet-4-5\nbase_url: {self.provider.url}\n"
            )
        for name, place in EXAMPLES.items():
            (box.specs / place).parent.mkdir(exist_ok=True)
            box.spec(place, (REPOSITORY / "sessions.d" / f"{name}.yaml").read_text())
        for name, text in SPECS.items():
            (box.specs / name).parent.mkdir(exist_ok=True)
            box.spec(name, text)
        box.write("wakeful.yaml", "notify: {desk: {command: [cat]}}\n")
        box.write("site/src/routes.py", "def pay(month): ...\ndef file(city): ...\n")
        git(box.folder / "site", "init", "-q")
        self.commit("Begin")
        box.write("prices.csv", "bolt,3\nnut,2\n")
        box.write("ledgers/jan.csv", "1\n")
        for number, words in ((17, "the printer is on fire"), (18, "it is out now"), (21, "a new chair please")):
            box.write(f"tickets/{number}.md", words)
        return box

    def commit(self, words: str) -> None:
        git(self.box.folder / "site", "add", "-A")
        git(self.box.folder / "site", "-c", "user.name=ana", "-c", "user.email=ana@example.org", "commit", "-qm", words)

    def change_salary(self, amount: int) -> None:
        """Edit one cell of one row, as a person does."""
        table = self.box.folder / "examples/hr/salaries.csv"
        lines = table.read_text().splitlines()
        header = lines[0].split(",")
        cells = lines[1].split(",")
        cells[header.index("base_salary")] = f"{amount}.00"
        self.box.save("examples/hr/salaries.csv", "\n".join([lines[0], ",".join(cells), *lines[2:]]) + "\n")

    def live(self) -> None:
        """Make some history: runs of every kind, facts, a fork, a sleeping session and two questions."""
        box = self.box
        box.wait_at_rest("hr/social-insurance-filing", runs=1)
        box.wait_at_rest("docs/guide", runs=1)
        box.wait_for("ops/deploy", state="sleeping")
        box.ask("answer", "ops/deploy", "yes")
        box.wait_at_rest("ops/deploy", runs=1)
        box.ask("sleep", "ops/price-watch", "--for", "6h", "--reason", "the supplier moves its shop")
        box.ask(
            "remember",
            "hr/payroll",
            "currency",
            "CNY",
            "--because",
            "every contract is in yuan",
            "--confidence",
            "0.98",
        )
        box.ask("remember", "hr/payroll", "closing day", "the 25th of the month")
        box.ask("save", "hr/payroll", "--as", "before-raise", "--note", "as audited")
        for amount in (21000, 21500, 22000):
            runs = box.row("hr/payroll")["runs"]
            self.change_salary(amount)
            box.wait_at_rest("hr/payroll", runs=runs + 1)
        box.ask("note", "hr/payroll", "March is computed; April waits for the new rates of Chengdu.")
        box.ask("send", "hr/payroll", "The office confirmed the new rates.")
        box.ask("fork", "hr/payroll", "--as", "hr/payroll-trial", "--at", "before-raise")
        box.write("site/src/routes.py", "def pay(month): ...\ndef file(city): ...\ndef close(month): ...\n")
        self.commit("Close a month")
        box.wait_at_rest("docs/guide", runs=2)
        box.ask("ask", "docs/guide", "Is any route open to strangers?", "--agent", "security")
        box.wait_for("ops/deploy", state="sleeping")
