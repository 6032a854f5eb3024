"""The verbs about a session's past and about sessions as files: checkpoints, bundles, rewinds, forks, merges,
erasures, replays."""

from __future__ import annotations

from wakeful.verbs.answer_fields import PROGRESS, REPLAYED
from wakeful.verbs.verb import ANSWER, DRY_RUN, FILES, KEY, NAME, PREVIEW, Argument, Route, Verb, calls

PATH = Argument("path", "file", help="An absolute path on the daemon's machine.")
# The arguments of both routes that load a bundle.
LOADED = (
    Argument("new", only="http", help="The name of the new session."),
    Argument(
        "root",
        "folder",
        only="http",
        help="Root folder on this machine. Without it, write bindings are disabled.",
    ),
    Argument("move", "flag", only="http", help="Complete a migrate: load the session itself, not a fork."),
)


def bundles(what: str, words: str, *takes: Argument) -> Route:
    """Make a route that works on bundles. Its answer is a stream of progress lines."""
    return Route(
        "POST",
        f"/bundle/{what}",
        "admin",
        is_machine_wide=True,
        words=words,
        takes=takes,
        gives=PROGRESS,
        shape="lines",
    )


VERBS = (
    Verb(
        name="save",
        section="Act",
        words="write a session to one file, or (with --as) mark a checkpoint",
        help=(
            "Write a session to one file, a bundle: its records, blobs, scratch files and spec, each verified by its "
            "hash. With --as, mark a checkpoint instead."
        ),
        examples=(
            "wakeful save payroll -o payroll.bundle",
            "wakeful save payroll --as march --note 'before the audit'",
        ),
        arguments=(
            NAME,
            Argument(
                "mark",
                option="--as",
                is_required=True,
                on_terminal="optional",
                help="Mark a checkpoint with this name instead of writing a bundle.",
                metavar="MARK",
            ),
            Argument(
                "at",
                option="--at",
                help="With --as: mark this position instead of the present one.",
                metavar="POSITION",
                completion="position",
            ),
            Argument("note", option="--note", help="With --as: the reason, kept with the mark.", metavar="TEXT"),
            Argument(
                "output",
                option="-o --output",
                help="The file to write. Default: NAME.bundle.",
                metavar="FILE",
                completion="file",
                only="terminal",
            ),
            KEY,
        ),
        cli_module="verbs.bundles",
        routes=(
            calls("save", "admin"),
            bundles(
                "save",
                "write a session's bundle to a file on the daemon's machine",
                NAME,
                PATH,
                Argument("to", "number", is_required=False, least=1, help="The last seq to include. Default: all."),
            ),
            Route(
                "GET",
                "/sessions/{name}/bundle",
                "admin",
                "path",
                words="return a session's bundle",
                takes=(NAME,),
                gives=(),
                shape="bytes",
                is_from_log=True,
            ),
        ),
        role="contributor",
        is_repeatable=True,
        answer=ANSWER,
    ),
    Verb(
        name="load",
        section="Act",
        words="load a bundle, or bring back an archived session",
        help=(
            "Load a bundle as a new session, or bring back an archived session by its NAME. A session from a bundle "
            "does not run before its spec is trusted."
        ),
        examples=(
            "wakeful load payroll.bundle --as trial",
            "wakeful load payroll            # from the archive",
        ),
        arguments=(
            Argument("source", metavar="FILE|NAME", completion="session or path", only="terminal"),
            Argument("new", option="--as", help="The name of the new session.", metavar="NAME", only="terminal"),
            Argument(
                "root",
                option="--root",
                help="Root folder on this machine. Without it, write bindings are disabled.",
                metavar="DIR",
                completion="folder",
                only="terminal",
            ),
            Argument(
                "is_move",
                "flag",
                "--move",
                help="Complete a migrate: load the session itself, not a fork. Prints the receipt.",
                only="terminal",
            ),
            Argument(
                "is_trusted",
                "flag",
                "--trust",
                help="Show its spec, and ask at once whether to trust it.",
                only="terminal",
            ),
            Argument(
                "is_sure",
                "flag",
                "--yes",
                help="With --trust: print the spec and trust it without asking.",
                only="terminal",
            ),
        ),
        cli_module="verbs.bundles",
        routes=(
            bundles(
                "load",
                "load a bundle file on the daemon's machine, or bring back an archived session",
                PATH._replace(is_required=False),
                NAME._replace(is_required=False, help="An archived session, instead of a path."),
                *LOADED,
            ),
            bundles("import", "load the bundle in the request body", *LOADED)._replace(
                takes_any_type=True, is_upload=True
            ),
        ),
        role="contributor",
        not_a_tool="it takes a bundle as a file: only a person loads bundles",
    ),
    Verb(
        name="archive",
        section="Act",
        words="move a session's payloads to a compressed bundle",
        help=(
            "Move a resting session's payloads to a compressed bundle in the state folder. `wakeful load NAME` brings "
            "them back."
        ),
        examples=(
            "wakeful archive payroll",
            "wakeful archive --due --dry-run",
        ),
        arguments=(
            Argument("name", is_required=False, completion="session"),
            Argument(
                "is_due",
                "flag",
                "--due",
                help="Archive every session that its retention allows. The daemon does so once an hour.",
                only="terminal",
            ),
            Argument(
                "dry_run",
                "flag",
                "--dry-run",
                help="With --due: only list the sessions, with the reason for each.",
                only="terminal",
            ),
        ),
        cli_module="verbs.bundles",
        routes=(
            bundles("archive", "archive one session", NAME),
            bundles("due", "archive every session that its retention allows", Argument("dry_run", "flag", only="http")),
        ),
        undo="load",
        role="maintainer",
        is_dangerous=True,
    ),
    Verb(
        name="migrate",
        section="Act",
        words="move a session to another agent, model or host",
        help="Move a session to another agent, model or host. Without options: return to the agent in its spec.",
        examples=(
            "wakeful migrate payroll --agent hr2",
            "wakeful migrate payroll --to ssh://laptop",
            "wakeful migrate payroll --to payroll.bundle",
        ),
        arguments=(
            NAME,
            Argument("agent", option="--agent", help="The agent of the next runs.", metavar="NAME"),
            Argument("model", option="--model", help="The model of the next runs.", metavar="NAME"),
            Argument(
                "to",
                option="--to",
                help="Move to another host, through ssh or as a bundle file to carry there.",
                metavar="ssh://HOST|FILE",
                only="terminal",
            ),
            Argument(
                "is_trusted",
                "flag",
                "--trust",
                help="With --to ssh://: trust its spec on the other host, too, without asking.",
                only="terminal",
            ),
            Argument(
                "receipt_file",
                option="--receipt",
                help="Complete the move with the receipt that `load --move` printed there.",
                metavar="FILE",
                completion="file",
                only="terminal",
            ),
            Argument("give_up", "flag", "--give-up", help="Cancel the move. Its bundle must not be loaded."),
            Argument("receipt", "object", only="http"),
            KEY,
        ),
        cli_module="verbs.bundles",
        routes=(
            calls("migrate", "admin"),
            bundles(
                "move",
                "freeze a session, and write the bundle that another host loads",
                NAME,
                PATH,
                Argument("to", help="The name of the other host, for the record."),
            ),
        ),
        undo="migrate",
        role="maintainer",
        is_repeatable=True,
        is_dangerous=True,
        answer=ANSWER,
    ),
    Verb(
        name="rewind",
        section="Act",
        words="go back to a seq, time or checkpoint; nothing is deleted",
        help="Go back to a seq, time or checkpoint. Nothing is deleted: later records stay and can be forked.",
        examples=(
            "wakeful rewind payroll march --files --dry-run",
            "wakeful rewind payroll 12       # to seq 12",
            "wakeful rewind payroll 2h       # to two hours ago",
        ),
        arguments=(
            NAME,
            Argument("to", metavar="POSITION", completion="position"),
            Argument(
                "files", "flag", "--files", help="Also restore the files its runs changed since, from the kept copies."
            ),
            Argument(
                "force",
                "flag",
                "--force",
                help="With --files: also restore files that others changed since. Their version is kept.",
            ),
            DRY_RUN,
            KEY,
        ),
        cli_module="verbs.history",
        routes=(calls("rewind", "admin"),),
        undo="rewind",
        role="maintainer",
        is_repeatable=True,
        is_dangerous=True,
        answer=(*ANSWER, PREVIEW, FILES),
    ),
    Verb(
        name="fork",
        section="Act",
        words="create a new session from any point of another",
        help=(
            "Create a new session from any point of another. It sleeps until it is activated. Its write bindings are "
            "disabled until it has its own files (--workspace)."
        ),
        examples=(
            "wakeful fork payroll --as trial --workspace",
            "wakeful fork payroll --as trial --at march",
        ),
        arguments=(
            NAME,
            Argument("new", option="--as", help="The fork's name.", metavar="NAME"),
            Argument(
                "at",
                option="--at",
                help="Start at this position. Default: the newest record.",
                metavar="POSITION",
                completion="position",
            ),
            Argument("fresh", "flag", "--fresh", help="Copy only facts and hand-off."),
            Argument(
                "workspace",
                "folder",
                "--workspace",
                help=(
                    "Give the fork its own files: a checkout of the repository, or copies. DIR must be empty. "
                    "Default: a folder below the state folder."
                ),
                metavar="[DIR]",
                completion="folder",
                flag_value="",
            ),
            KEY,
        ),
        routes=(calls("fork", "admin", None),),
        undo="terminate",
        role="contributor",
        is_repeatable=True,
        answer=ANSWER,
    ),
    Verb(
        name="merge",
        section="Act",
        words="merge a fork back; changes on both sides become conflicts",
        help=(
            "Merge FORK back into NAME. Facts and the files of its workspace are merged three-way. Its conversation "
            "becomes a hand-off. Changes on both sides become conflicts."
        ),
        examples=(
            "wakeful merge payroll trial --dry-run",
            "wakeful merge payroll trial",
        ),
        arguments=(
            NAME,
            Argument("fork", completion="fork"),
            DRY_RUN,
            KEY,
        ),
        cli_module="verbs.history",
        routes=(calls("merge", "admin", None),),
        undo="rewind",
        role="maintainer",
        is_repeatable=True,
        is_dangerous=True,
        answer=(*ANSWER, PREVIEW, FILES),
    ),
    Verb(
        name="resolve",
        section="Act",
        words="settle a merge conflict",
        help="Settle an open merge conflict, with a reason. `show` lists the open conflicts.",
        examples=(
            "wakeful resolve payroll rate --theirs --because 'it was measured'",
            "wakeful resolve payroll 1 --value 9 --because 'both were wrong'",
        ),
        arguments=(
            NAME,
            Argument("conflict", metavar="NUMBER|KEY", completion="conflict"),
            Argument("choice", "flag", "--ours", help="Keep the value of NAME.", flag_value="ours", only="terminal"),
            Argument(
                "choice", "flag", "--theirs", help="Take the value of the fork.", flag_value="theirs", only="terminal"
            ),
            Argument("value", option="--value", help="Use this value instead of both.", metavar="TEXT"),
            Argument(
                "rationale",
                option="--because",
                help="The reason, kept with the fact.",
                metavar="TEXT",
                on_terminal="required",
            ),
            Argument("choice", "choice", choices=("ours", "theirs", "value"), is_required=True, only="http"),
            KEY,
        ),
        cli_module="verbs.history",
        routes=(calls("resolve", "admin"),),
        undo="rewind",
        role="contributor",
        is_repeatable=True,
        answer=ANSWER,
    ),
    Verb(
        name="erase",
        section="Act",
        words="remove the content of a record for good; its hash stays",
        help=(
            "Remove the content of record SEQ for good, for example a secret that was recorded by mistake. Its hash "
            "stays, so the chain still verifies."
        ),
        examples=("wakeful erase payroll 12 --because 'a password' --dry-run",),
        arguments=(
            NAME,
            Argument("seq", "number", least=1),
            Argument("reason", option="--because", help="The reason, kept in the log.", metavar="TEXT"),
            DRY_RUN,
            KEY,
        ),
        cli_module="verbs.history",
        routes=(calls("erase", "admin"),),
        role="maintainer",
        is_repeatable=True,
        is_dangerous=True,
        answer=(*ANSWER, PREVIEW),
    ),
    Verb(
        name="compress",
        section="Act",
        words="replace old conversation by a summary; facts and log stay",
        help="Replace old conversation by a summary. Facts and log stay. `rewind` undoes it.",
        examples=("wakeful compress payroll --keep 5 --dry-run",),
        arguments=(
            NAME,
            Argument(
                "keep",
                "number",
                "--keep",
                help="Leave the newest N messages as they are. Default: 20.",
                metavar="N",
                default=20,
                least=0,
            ),
            DRY_RUN,
            KEY,
        ),
        cli_module="verbs.history",
        routes=(calls("compress", "admin"),),
        undo="rewind",
        role="contributor",
        is_repeatable=True,
        is_dangerous=True,
        answer=(*ANSWER, PREVIEW),
    ),
    Verb(
        name="replay",
        section="Look",
        words="run a recorded run again on the same files, and compare",
        help="""Run a recorded run again on the files it found then, and compare the files both wrote.

        It works in a copy; no real file is changed and nothing is recorded. Exit code 0: the same. 1: different, or
        an input was not kept.""",
        examples=(
            "wakeful replay payroll 3",
            "wakeful replay payroll 3 --command 'python3 new.py' --keep copy",
        ),
        arguments=(
            NAME,
            Argument("run", "number", least=1, completion="run"),
            Argument(
                "command",
                option="--command",
                help="Run this command instead, quoted as in a shell, on the recorded files.",
                metavar="WORDS",
                only="terminal",
            ),
            Argument(
                "is_partial",
                "flag",
                "--partial",
                help="Compare even if an input was not kept.",
                only="terminal",
            ),
            Argument(
                "keep",
                option="--keep",
                help="Keep the copy it ran in, as this folder.",
                metavar="DIR",
                completion="folder",
                only="terminal",
            ),
        ),
        cli_module="verbs.history",
        routes=(
            Route(
                "POST",
                "/replay",
                "admin",
                takes=(
                    NAME,
                    Argument("run", "number", least=1),
                    Argument("command", is_repeated=True, is_required=False, help="Run this command instead."),
                    Argument("keep", "folder", is_required=False, help="Keep the copy it ran in, as this folder."),
                ),
                gives=REPLAYED,
                shape="lines",
            ),
        ),
    ),
)
