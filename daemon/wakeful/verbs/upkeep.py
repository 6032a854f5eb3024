"""The verbs that keep the daemon itself: its log, its service, its tokens, the shell."""

from __future__ import annotations

from wakeful.verbs.answers import HEALTH, NOTIFIER, TOKEN
from wakeful.verbs.verb import SCOPES, Argument, Field, Route, Verb, reads

# A token, not even an admin's, cannot make tokens that outlive it.
TOKENS = (
    Route("GET", "/tokens", "owner", words="the tokens there are", takes=(), gives=TOKEN, shape="list"),
    Route(
        "POST",
        "/tokens",
        "owner",
        words="a new token, told this once",
        takes=(
            Argument("scopes", "choice", choices=SCOPES, is_repeated=True, is_required=False, help="What it opens."),
            Argument("session", is_required=False, help="The only session it reaches."),
            Argument("seconds", "decimal", is_required=False, help="How long it lasts; else until it is revoked."),
            Argument("note", is_required=False, help="Who has it and what for."),
            Argument("person", is_required=False, help="The person whose token it is."),
        ),
        gives=(*TOKEN, Field("token", "text", "the token itself")),
    ),
    Route(
        "POST",
        "/tokens/revoke",
        "owner",
        words="revoke a token",
        takes=(Argument("id"),),
        gives=(Field("id", "text", "its id"), Field("words", "text", "what was done")),
    ),
)

# Where the log is that a verb is about.
STATE = Argument(
    "state",
    option="--state",
    help=(
        "The state folder; unless told, that of the daemon that answers, else .wakeful of this project, else your own."
    ),
    metavar="DIR",
    completion="folder",
    only="terminal",
)

# Whose service is meant.
WHOSE = (
    Argument("is_dry", "flag", "--dry-run", help="Say what would be done, and do nothing.", only="terminal"),
    Argument(
        "account",
        option="--account",
        help="With --system: the account it runs as. Default: who called sudo.",
        metavar="NAME",
        only="terminal",
    ),
    Argument(
        "is_system",
        "flag",
        "--system",
        help="A daemon of the machine, wakeful@ACCOUNT.service. Needs root, and never runs as root.",
        only="terminal",
    ),
    Argument(
        "is_user",
        "flag",
        "--user",
        help="Your own daemon, in your own service manager. The default, unless you are root.",
        only="terminal",
    ),
)

VERBS = (
    Verb(
        name="verify",
        section="Keep",
        words="recompute every hash of the log",
        help="Recompute every hash of the log, and say where something does not hold. Exit 1 on a finding.",
        examples=(
            "wakeful verify",
            "wakeful verify payroll",
        ),
        arguments=(
            Argument("name", is_required=False, completion="session", only="terminal"),
            STATE,
        ),
    ),
    Verb(
        name="doctor",
        section="Keep",
        words="is everything as it should be, and if not, what mends it",
        help=(
            "Check the daemon and its service, SQLite, watches, git, bubblewrap, the clock, the state folder, disk "
            "space, the log and what it leans on, specs and bindings."
        ),
        examples=(
            "wakeful doctor",
            "wakeful doctor --mend           # with the daemon stopped",
        ),
        arguments=(
            STATE,
            Argument(
                "is_mending",
                "flag",
                "--mend",
                help="With the daemon stopped: make anew what is told from the records, and say what was done.",
                only="terminal",
            ),
        ),
        routes=(reads("/doctor"),),
        answer=HEALTH,
    ),
    Verb(
        name="backup",
        section="Keep",
        words="a verified copy of the log, beside a running daemon",
        help="Write a verified copy of the log to FILE while the daemon goes on. Never overwrites.",
        examples=("wakeful backup ~/wakeful-2026-01-31.backup",),
        arguments=(
            Argument("file", "file", completion="file"),
            STATE,
        ),
    ),
    Verb(
        name="restore",
        section="Keep",
        words="put a backup in the place of the log",
        help="Put a backup in the place of the log. Refused while a daemon runs; the present log is kept aside.",
        examples=("wakeful restore ~/wakeful-2026-01-31.backup",),
        arguments=(
            Argument("file", "file", completion="file"),
            Argument(
                "state",
                option="--state",
                help="The state folder; unless told, .wakeful of this project, else your own.",
                metavar="DIR",
                completion="folder",
                only="terminal",
            ),
            Argument(
                "even_if_newer",
                "flag",
                "--even-if-newer",
                help="Also when the present log has records the backup has not.",
                only="terminal",
            ),
        ),
        is_dangerous=True,
    ),
    Verb(
        name="token",
        section="Keep",
        words="hand out a token that opens a part of this; list, revoke",
        help="""Hand out a token that opens a part of the control socket, and no more.

        `read` looks; `send` leaves messages, hand-offs and facts; `run` starts, holds and stops runs; `admin` does
        everything but make tokens. Scopes do not include one another, `admin` aside. The token is printed once and
        kept as a hash alone. Whoever has it puts it in a file of their own and names that in WAKEFUL_TOKEN_FILE, or
        sends it as `Authorization: Bearer TOKEN`. Revoked, it opens nothing from the next request on.""",
        examples=(
            "wakeful token new --scope read --for 30d --note dashboard",
            "wakeful token new --scope send --session payroll > ci.token",
            "wakeful token new --person ana > ana.token   # reaches as far as ana does",
            "wakeful token list",
            "wakeful token revoke 3f2a91bc",
        ),
        arguments=(
            Argument("what", "choice", choices=("new", "list", "revoke"), only="terminal"),
            Argument("token_id", metavar="[ID]", is_required=False, only="terminal"),
            Argument(
                "scopes",
                "choice",
                "--scope",
                help="What it opens; may be given again.",
                is_repeated=True,
                choices=("read", "send", "run", "admin"),
                only="terminal",
            ),
            Argument(
                "session",
                option="--session",
                help="The only session it reaches.",
                metavar="NAME",
                completion="session",
                only="terminal",
            ),
            Argument(
                "length",
                option="--for",
                help="How long it lasts, such as 12h or 30d.",
                metavar="LENGTH",
                only="terminal",
            ),
            Argument(
                "person",
                option="--person",
                help="Whose it is (wakeful people): what they do with it is recorded under their name.",
                metavar="NAME",
                only="terminal",
            ),
            Argument("note", option="--note", help="Who has it and what for.", metavar="TEXT", only="terminal"),
        ),
        routes=(*TOKENS,),
    ),
    Verb(
        name="dashboard",
        section="Keep",
        words="a link that opens the dashboard in your browser",
        help="""Print a link to the dashboard, and open it where there is a display.

        The daemon opens its TCP port on 127.0.0.1 if it is closed; the port stays the same from one time to the next
        where nobody else took it. The link logs one browser in, once, within five minutes, and only a browser of your
        own account. A browser stays logged in until it logs out, is revoked (wakeful token list), or was not used for
        30 days. From another machine: ssh -L 8420:127.0.0.1:8420 HOST, and open the link there.""",
        examples=(
            "wakeful dashboard",
            "wakeful dashboard --no-open      # only print the link",
            "wakeful dashboard --close        # log every browser out, close the port",
        ),
        arguments=(
            Argument("is_quiet", "flag", "--no-open", help="Print the link, and open nothing.", only="terminal"),
            Argument("is_closing", "flag", "--close", help="Log every browser out, and close the port."),
        ),
        routes=(Route("POST", "/dashboard", "owner"),),
        answer=(
            Field("url", "text", "where the port listens; null: it is closed"),
            Field("link", "text", "the link that logs one browser in", is_optional=True),
            Field("ends_at", "moment", "when the link ends", is_optional=True),
            Field("words", "text", "with is_closing: what was done", is_optional=True),
        ),
    ),
    Verb(
        name="notify",
        section="Keep",
        words="who is told when a person should look, and what came of it; send a test",
        help="""List the notifiers of wakeful.yaml with what they delivered, or send one message by hand.

        A notifier tells people that a run failed, that a session asks, that it sleeps until somebody acts, that its
        budget is spent, or that it works again. `test` sends at once and says what came of it; a success also enables a
        notifier that its receiver had refused for good (410).""",
        examples=(
            "wakeful notify list",
            "wakeful notify test ops",
        ),
        arguments=(
            Argument("what", "choice", choices=("list", "test"), only="terminal"),
            Argument("name", is_required=False, completion="notifier"),
        ),
        routes=(
            Route(
                "GET",
                "/notify",
                "read",
                words="every notifier, with what it delivered",
                takes=(),
                gives=NOTIFIER,
                shape="list",
            ),
            Route(
                "POST",
                "/notify/test",
                "admin",
                words="send a message to a notifier, now",
                takes=(Argument("name", help="The notifier's name."),),
                gives=(
                    Field("name", "text", "the notifier"),
                    Field("is_delivered", "flag", "did it arrive?"),
                    Field("words", "text", "what was answered; null: nothing"),
                ),
            ),
        ),
    ),
    Verb(
        name="install",
        section="Keep",
        words="run the daemon as a service of systemd, yours or the machine's",
        help="""Write the units of systemd, enable and start them: now, and with every login or boot.

        The folder that --specs names is followed as it is edited. To be repeated after an upgrade.""",
        examples=(
            "wakeful install",
            "wakeful install --specs ~/project/sessions.d",
            "wakeful install --system --account builder --dry-run",
        ),
        arguments=(
            Argument(
                "specs",
                option="--specs",
                help=(
                    "Where the specs are. Default: ~/.config/wakeful/sessions.d; with --system "
                    "/etc/wakeful/ACCOUNT/sessions.d."
                ),
                metavar="DIR",
                only="terminal",
            ),
            Argument(
                "state",
                option="--state",
                help="Where the log is kept. Default: ~/.local/state/wakeful; with --system /var/lib/wakeful/ACCOUNT.",
                metavar="DIR",
                only="terminal",
            ),
            *WHOSE,
        ),
        undo="uninstall",
    ),
    Verb(
        name="uninstall",
        section="Keep",
        words="stop that service and remove what install wrote; specs and state stay",
        help="Stop and disable the daemon's units, and remove the files `install` wrote. Specs and state stay.",
        examples=(
            "wakeful uninstall",
            "wakeful uninstall --system --account builder",
        ),
        arguments=(*WHOSE,),
        is_dangerous=True,
    ),
    Verb(
        name="completion",
        section="Keep",
        words="completion of verbs, options and names for your shell",
        help="Print a script that completes verbs, options, and names of sessions as the daemon knows them now.",
        examples=(
            'eval "$(wakeful completion bash)"   # in ~/.bashrc; zsh the same',
            "wakeful completion fish > ~/.config/fish/completions/wakeful.fish",
        ),
        arguments=(Argument("shell", "choice", choices=("bash", "zsh", "fish"), only="terminal"),),
    ),
    Verb(
        name="mcp",
        section="Keep",
        words="these verbs as tools of MCP, for coding agents",
        help="""Serve the Model Context Protocol on standard input and output. Coding agents start it by themselves.

        The verbs are tools, sessions are resources. The daemon's socket is found as by every other command; with
        --http, the daemon is reached over TCP, with the token in WAKEFUL_TOKEN_FILE or WAKEFUL_TOKEN. Inside a run
        there are only the tools that a run may use, for its own session. Verbs that close, remove, replace or go
        back, and `answer`, are left out unless --allow-dangerous is given.""",
        examples=(
            "wakeful mcp",
            "wakeful mcp    # claude mcp add wakeful -- wakeful mcp",
            "wakeful mcp --http http://127.0.0.1:8420",
        ),
        arguments=(
            Argument(
                "http",
                option="--http",
                help="Reach the daemon here instead of at its socket. Takes a token.",
                metavar="URL",
                only="terminal",
            ),
            Argument(
                "only",
                option="--only",
                help="Offer only the tool of this verb, such as list; may be given again.",
                metavar="VERB",
                is_repeated=True,
                only="terminal",
            ),
            Argument(
                "allows_dangerous",
                "flag",
                "--allow-dangerous",
                help="Offer also the verbs that close, remove, replace or go back, and `answer`.",
                only="terminal",
            ),
        ),
    ),
    Verb(
        name="daemon",
        section="Keep",
        words="the service itself",
        help="Watch, wake, run and record, until SIGTERM. Prints a line that begins with `ready` when it is armed.",
        examples=(
            "wakeful daemon",
            "wakeful daemon --once           # what is owed, then exit",
            "wakeful daemon --specs ./sessions.d --state ./.wakeful",
        ),
        arguments=(
            Argument(
                "specs",
                option="--specs",
                help="Where the specs are. Default: ./sessions.d, else the one in your configuration.",
                metavar="DIR",
                completion="folder",
                only="terminal",
            ),
            Argument(
                "state",
                option="--state",
                help="Where the log and everything else is kept.",
                metavar="DIR",
                completion="folder",
                only="terminal",
            ),
            Argument(
                "http",
                option="--http",
                help="Listen on TCP, too, such as 127.0.0.1:8420; port 0 is any that is free. off: never.",
                metavar="HOST:PORT|off",
                variable="WAKEFUL_HTTP",
                only="terminal",
            ),
            Argument(
                "is_once",
                "flag",
                "--once",
                help=(
                    "Run all that is owed to the end of the wave, then exit: 1 if a run failed, now or before, or a "
                    "spec was refused."
                ),
                only="terminal",
            ),
            Argument(
                "log",
                "choice",
                "--log",
                help="How it says what happens. Default: entries where the journal of systemd listens, else text.",
                choices=("text", "json"),
                only="terminal",
            ),
        ),
    ),
)
