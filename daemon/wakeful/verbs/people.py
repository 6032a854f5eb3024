"""The verbs about people: who may do what, and who is here now."""

from __future__ import annotations

from wakeful.verbs.answers import PERSON
from wakeful.verbs.verb import NAME, Argument, Field, Route, Verb, reads

PERSON_NAME = Argument("name", help="The person's name.")
FOR_SESSION = Argument("session", is_required=False, help="The session that the role is for; else every session.")
WORDS = Field("words", "text", "what was done")
ROLES = ("maintainer", "contributor", "observer")

# The daemon's owner lets people in, never a token.
PEOPLE = (
    Route(
        "GET",
        "/people",
        "owner",
        words="people, their roles, and what changed",
        takes=(),
        gives=(
            Field(
                "people",
                "list",
                "the people",
                fields=(
                    *PERSON,
                    Field("tokens", "number", "how many tokens they have"),
                    Field("account", "text", "their account on this machine, or null"),
                ),
            ),
            Field("changes", "list", "at, by, name and words of each change"),
        ),
    ),
    Route(
        "POST",
        "/people/add",
        "owner",
        words="let a person in",
        takes=(PERSON_NAME, Argument("role", "choice", choices=ROLES, is_required=True), FOR_SESSION),
        gives=(*PERSON, WORDS),
    ),
    Route(
        "POST",
        "/people/role",
        "owner",
        words="change a person's role; null takes it away",
        takes=(PERSON_NAME, Argument("role", "choice", choices=ROLES, is_required=False), FOR_SESSION),
        gives=(*PERSON, WORDS),
    ),
    Route(
        "POST",
        "/people/remove",
        "owner",
        words="remove a person and their tokens",
        takes=(PERSON_NAME,),
        gives=(
            Field("name", "text", "their name"),
            WORDS,
            Field("revoked", "number", "how many tokens were revoked"),
        ),
    ),
)

SAYS_PRESENT = Route(
    "POST",
    "/presence",
    None,
    words="say that you look at a session, or write to it",
    takes=(NAME, Argument("doing", "choice", choices=("looks", "writes"), default="looks")),
)

VERBS = (
    Verb(
        name="presence",
        section="Look",
        words="who looks at a session or works in it now",
        help="Who looks at a session or works in it: everybody who asked about it or called it within the last minute.",
        examples=(
            "wakeful presence",
            "wakeful presence payroll",
        ),
        arguments=(Argument("name", is_required=False, completion="session"),),
        routes=(reads("/presence", is_filtered=True), SAYS_PRESENT),
        answer=(
            Field("person", "text", "the name of a person, or token:ID"),
            Field("session", "text", "the session's name"),
            Field("id", "text", "the session's id"),
            Field("doing", "text", "looks or writes"),
            Field("since", "moment", "since when, without a break of a minute"),
        ),
        shape="list",
    ),
    Verb(
        name="people",
        section="Keep",
        words="let people in with a role; list, change, remove",
        help="""Let a person in, with a role for every session or for one.

        An `observer` looks. A `contributor` also talks to a session and lets it work. A `maintainer` does everything
        in the sessions given to them. Nobody but the daemon's own user reaches secrets, tokens, people, trust and what
        concerns the whole machine. `wakeful token new --person NAME` makes a token of theirs; the log then names them
        as the author. A role counts from the next request on.""",
        examples=(
            "wakeful people add ana --role maintainer",
            "wakeful people add ben --role contributor --session payroll",
            "wakeful people role ben --role observer     # for every session",
            "wakeful people role ben --role none --session payroll",
            "wakeful people list",
            "wakeful people changes",
            "wakeful people remove ben",
        ),
        arguments=(
            Argument("what", "choice", choices=("list", "add", "role", "remove", "changes"), only="terminal"),
            Argument("name", metavar="[NAME]", is_required=False, only="terminal"),
            Argument(
                "role",
                "choice",
                "--role",
                help="What they may do; `none` takes a role away.",
                choices=("maintainer", "contributor", "observer", "none"),
                only="terminal",
            ),
            Argument(
                "session",
                option="--session",
                help="The role is for this session and its forks. Default: for every session.",
                metavar="NAME",
                completion="session",
                only="terminal",
            ),
        ),
        routes=PEOPLE,
        undo="people remove",
    ),
)
