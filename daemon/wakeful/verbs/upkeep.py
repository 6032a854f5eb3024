"""The verbs that maintain the daemon: its log, service, tokens, dashboard, notifiers and shell completion."""

from __future__ import annotations

from wakeful.verbs.answer_fields import HEALTH, NOTIFIER, TOKEN
from wakeful.verbs.verb import SCOPES, Argument, Field, Route, Verb, reads

# No token may call these routes, not even an admin token: it could create tokens that outlive it.
TOKENS = (
    Route("GET", "/tokens", "owner", words="list all tokens", takes=(), gives=TOKEN, shape="list"),
    Route(
        "POST",
        "/tokens",
        "owner",
        words="create a token; it is shown only once",
        takes=(
            Argument("scopes", "choice", choices=SCOPES, is_repeated=True, is_required=False, help="Its scopes."),
            Argument("session", is_required=False, help="The only session it reaches."),
            Argument("seconds", "decimal", is_required=False, help="Its lifetime. Default: until it is revoked."),
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

# The option that selects the state folder with the log.
STATE = Argument(
    "state",
    option="--state",
    help="The state folder. Default: the running daemon's, else .wakeful of this project, else your own.",
    metavar="DIR",
    completion="folder",
    only="terminal",
)

# The options that select the systemd service.
WHOSE = (
    Argument("is_dry", "flag", "--dry-run", help="Print what would be done, and do nothing.", only="terminal"),
    Argument(
        "account",
        option="--account",
        help="With --system: the account it runs as. Default: the user who called sudo.",
        metavar="NAME",
        only="terminal",
    ),
    Argument(
        "is_system",
        "flag",
        "--system",
        help="A system service, wakeful@ACCOUNT.service. Needs root; the daemon never runs as root.",
        only="terminal",
    ),
    Argument(
        "is_user",
        "flag",
        "--user",
        help="A user service of your own. Default, unless you are root.",
        only="terminal",
    ),
)

VERBS = (
    Verb(
        name="verify",
        section="Keep",
        words="recompute every hash of the log",
        help="Recompute every hash of the log, and print each mismatch. Exit 1 if there is one.",
        examples=(
            "wakeful verify",
            "wakeful verify payroll",
        ),
        arguments=(
            Argument("name", is_required=False, completion="session", only="terminal"),
            STATE,
        ),
        cli_module="verbs.backup",
    ),
    Verb(
        name="doctor",
        section="Keep",
        words="check the installation, and print how to repair each problem",
        help=(
            "Check the daemon and its service, SQLite, watches, git, bubblewrap, the clock, the state folder, disk "
            "space, the log with its indexes and files, specs and bindings."
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
                help="Rebuild the data derived from the records (daemon stopped).",
                only="terminal",
            ),
        ),
        cli_module="verbs.doctor",
        routes=(reads("/doctor", is_from_log=False),),
        answer=HEALTH,
    ),
    Verb(
        name="backup",
        section="Keep",
        words="write a verified copy of the log while the daemon runs",
        help="Write a verified copy of the log to FILE. The daemon may keep running. An existing FILE is not replaced.",
        examples=("wakeful backup ~/wakeful-2026-01-31.backup",),
        arguments=(
            Argument("file", "file", completion="file"),
            STATE,
        ),
        cli_module="verbs.backup",
    ),
    Verb(
        name="restore",
        section="Keep",
        words="replace the log by a backup",
        help="Replace the log by a backup. The daemon must be stopped. The present log is kept in another folder.",
        examples=("wakeful restore ~/wakeful-2026-01-31.backup",),
        arguments=(
            Argument("file", "file", completion="file"),
            Argument(
                "state",
                option="--state",
                help="The state folder. Default: .wakeful of this project, else your own.",
                metavar="DIR",
                completion="folder",
                only="terminal",
            ),
            Argument(
                "even_if_newer",
                "flag",
                "--even-if-newer",
                help="Restore even if the present log has records that the backup does not have.",
                only="terminal",
            ),
        ),
        cli_module="verbs.backup",
        is_dangerous=True,
    ),
    Verb(
        name="token",
        section="Keep",
        words="create, list and revoke access tokens",
        help="""Create, list or revoke access tokens for the HTTP API.

        The scope `read` may look; `send` may leave messages, hand-offs and facts; `run` may start, hold and stop runs;
        `admin` may do everything except create tokens. Only `admin` includes other scopes. The token is printed once;
        the daemon keeps only its hash. A client stores it in a file and names that file in WAKEFUL_TOKEN_FILE, or
        sends it as `Authorization: Bearer TOKEN`. A revoked token is refused from the next request on.""",
        examples=(
            "wakeful token new --scope read --for 30d --note dashboard",
            "wakeful token new --scope send --session payroll > ci.token",
            "wakeful token new --person ana > ana.token   # with the roles of ana",
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
                help="A scope of the token. May be repeated.",
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
                help="Its lifetime, such as 12h or 30d. Default: until it is revoked.",
                metavar="LENGTH",
                only="terminal",
            ),
            Argument(
                "person",
                option="--person",
                help="The person (wakeful people) whose token it is. Records made with it name this person.",
                metavar="NAME",
                only="terminal",
            ),
            Argument("note", option="--note", help="Who has it and what for.", metavar="TEXT", only="terminal"),
        ),
        cli_module="verbs.people",
        routes=(*TOKENS,),
        not_a_tool="only a person creates tokens",
    ),
    Verb(
        name="dashboard",
        section="Keep",
        words="print a link that opens the dashboard in your browser",
        help="""Print a link to the dashboard, and open it if there is a display.

        The daemon opens its TCP port on 127.0.0.1 if it is closed. It uses the same port as before if that is free.
        The link works once, within five minutes, and only for a browser of your own account. A browser stays logged in
        until it logs out, its token is revoked (wakeful token list), or it is not used for 30 days. From another
        machine: ssh -L 8420:127.0.0.1:8420 HOST, and open the link there.""",
        examples=(
            "wakeful dashboard",
            "wakeful dashboard --no-open      # only print the link",
            "wakeful dashboard --close        # log out all browsers, close the port",
        ),
        arguments=(
            Argument("is_quiet", "flag", "--no-open", help="Print the link without opening it.", only="terminal"),
            Argument("is_closing", "flag", "--close", help="Log out all browsers, and close the port."),
        ),
        cli_module="verbs.people",
        routes=(Route("POST", "/dashboard", "owner"),),
        answer=(
            Field("url", "text", "the address of the TCP port; null: it is closed"),
            Field("link", "text", "the link that logs in one browser", is_optional=True),
            Field("ends_at", "moment", "when the link expires", is_optional=True),
            Field("words", "text", "with is_closing: what was done", is_optional=True),
        ),
    ),
    Verb(
        name="notify",
        section="Keep",
        words="list notifiers and their deliveries, or send a test message",
        help="""List the notifiers in wakeful.yaml and their deliveries, or send a test message.

        A notifier sends a message if a run failed, a session asks, a session sleeps until a person acts, a budget is
        spent, or a session works again. `test` sends at once and prints the result. If it succeeds, it also enables a
        notifier that was disabled because its receiver refused it for good (410).""",
        examples=(
            "wakeful notify list",
            "wakeful notify test ops",
        ),
        arguments=(
            Argument("what", "choice", choices=("list", "test"), only="terminal"),
            Argument("name", is_required=False, completion="notifier"),
        ),
        cli_module="verbs.notify",
        routes=(
            Route(
                "GET",
                "/notify",
                "read",
                words="list every notifier, with its deliveries",
                takes=(),
                gives=NOTIFIER,
                shape="list",
            ),
            Route(
                "POST",
                "/notify/test",
                "admin",
                words="send a test message through a notifier",
                takes=(Argument("name", help="The notifier's name."),),
                gives=(
                    Field("name", "text", "the notifier"),
                    Field("is_delivered", "flag", "did it arrive?"),
                    Field("words", "text", "the receiver's answer; null: none"),
                ),
            ),
        ),
    ),
    Verb(
        name="install",
        section="Keep",
        words="run the daemon as a systemd service, yours or the machine's",
        help="""Write the systemd units, enable and start them. They then start with every login or boot.

        All edits in the folder of --specs are trusted. Run it again after an upgrade.""",
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
                    "The folder of specs. Default: ~/.config/wakeful/sessions.d; with --system "
                    "/etc/wakeful/ACCOUNT/sessions.d."
                ),
                metavar="DIR",
                only="terminal",
            ),
            Argument(
                "state",
                option="--state",
                help="The state folder. Default: ~/.local/state/wakeful; with --system /var/lib/wakeful/ACCOUNT.",
                metavar="DIR",
                only="terminal",
            ),
            *WHOSE,
        ),
        cli_module="verbs.install",
        undo="uninstall",
    ),
    Verb(
        name="uninstall",
        section="Keep",
        words="stop and remove the systemd service; specs and state stay",
        help="Stop and disable the daemon's units, and remove the files that `install` wrote. Specs and state stay.",
        examples=(
            "wakeful uninstall",
            "wakeful uninstall --system --account builder",
        ),
        arguments=(*WHOSE,),
        cli_module="verbs.install",
        is_dangerous=True,
    ),
    Verb(
        name="completion",
        section="Keep",
        words="print a completion script for your shell",
        help="Print a script that completes verbs, options and the names of the daemon's present sessions.",
        examples=(
            'eval "$(wakeful completion bash)"   # in ~/.bashrc; same for zsh',
            "wakeful completion fish > ~/.config/fish/completions/wakeful.fish",
        ),
        arguments=(Argument("shell", "choice", choices=("bash", "zsh", "fish"), only="terminal"),),
        cli_module="completion_scripts",
    ),
    Verb(
        name="mcp",
        section="Keep",
        words="serve these verbs as MCP tools, for coding agents",
        help="""Serve the Model Context Protocol on standard input and output. Coding agents start this command.

        Verbs are tools and sessions are resources. It finds the daemon's socket like every other command. With
        --http, the daemon is reached over TCP, with the token in WAKEFUL_TOKEN_FILE or WAKEFUL_TOKEN. Inside a run,
        only the tools that a run may use are offered, for its own session. Verbs that close, remove, replace or go
        back, and `answer`, are offered only with --allow-dangerous.""",
        examples=(
            "wakeful mcp",
            "wakeful mcp    # claude mcp add wakeful -- wakeful mcp",
            "wakeful mcp --http http://127.0.0.1:8420",
        ),
        arguments=(
            Argument(
                "http",
                option="--http",
                help="Reach the daemon at this URL instead of its socket. Needs a token.",
                metavar="URL",
                only="terminal",
            ),
            Argument(
                "only",
                option="--only",
                help="Offer only the tool of this verb, such as list. May be repeated.",
                metavar="VERB",
                is_repeated=True,
                only="terminal",
            ),
            Argument(
                "allows_dangerous",
                "flag",
                "--allow-dangerous",
                help="Also offer the verbs that close, remove, replace or go back, and `answer`.",
                only="terminal",
            ),
        ),
        cli_module="verbs.mcp",
    ),
    Verb(
        name="daemon",
        section="Keep",
        words="run the daemon: watch, wake, run and record",
        help=(
            "Run the daemon: watch, wake, run and record, until SIGTERM. Prints a line that begins with `ready` when "
            "everything is watched."
        ),
        examples=(
            "wakeful daemon",
            "wakeful daemon --once           # run what is owed, then exit",
            "wakeful daemon --specs ./sessions.d --state ./.wakeful",
        ),
        arguments=(
            Argument(
                "specs",
                option="--specs",
                help="The folder of specs. Default: ./sessions.d, else the one in your configuration folder.",
                metavar="DIR",
                completion="folder",
                only="terminal",
            ),
            Argument(
                "state",
                option="--state",
                help="The state folder, with the log and all other data.",
                metavar="DIR",
                completion="folder",
                only="terminal",
            ),
            Argument(
                "http",
                option="--http",
                help="Also listen on TCP, such as 127.0.0.1:8420. Port 0: any free port. off: never.",
                metavar="HOST:PORT|off",
                variable="WAKEFUL_HTTP",
                only="terminal",
            ),
            Argument(
                "is_once",
                "flag",
                "--once",
                help=(
                    "Run everything that is owed, and all sessions that these runs wake, then exit. Exit 1 if a run "
                    "failed, now or earlier, or a spec was refused."
                ),
                only="terminal",
            ),
            Argument(
                "log",
                "choice",
                "--log",
                help="The format of its messages. Default: entries of the systemd journal if it listens, else text.",
                choices=("text", "json"),
                only="terminal",
            ),
        ),
        cli_module="verbs.daemon",
    ),
)
