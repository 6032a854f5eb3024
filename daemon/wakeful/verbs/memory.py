"""The verbs by which a session is told something or keeps something: messages, questions, hand-offs, facts, the to-do
list."""

from __future__ import annotations

from wakeful.verbs.verb import ANSWER, HELD, KEY, NAME, Argument, Verb, calls

VERBS = (
    Verb(
        name="ask",
        section="Act",
        words="put a message to a session's agent, or to another, and read the answer",
        help="""Ask a session's agent something, now, and wait for the answer. Exit 1 if none came.

        Your questions to a session are one conversation: the next one knows the last, until --fresh. TEXT may be
        `-`, or left out: then standard input is the question. Text that is piped in beside a question stands below
        it. Another agent answers in the same session, with its own prompt, model and tools; the next message goes
        back to the owner. A terminal shows what the answer took, and --json has it as `usage`: it is billed to the
        agent that answered.""",
        examples=(
            "wakeful ask api-docs 'Which routes have no docs yet?'",
            "wakeful ask payroll 'Is this safe?' --agent security --fresh",
            "git diff | wakeful ask api-docs 'Is this told in the docs?'",
            "cat question.txt | wakeful ask api-docs",
        ),
        arguments=(
            NAME,
            Argument("text", on_terminal="optional"),
            Argument(
                "agent",
                option="--agent",
                help="Who is to answer this one message; the session's own agent unless told.",
                metavar="NAME",
            ),
            Argument(
                "fresh",
                "flag",
                "--fresh",
                help="In a new conversation: facts and hand-off only. Else your last question goes on.",
            ),
            Argument(
                "with_thoughts",
                "flag",
                "--thinking/--no-thinking",
                help="Show its thoughts, dimmed, on a terminal.",
                default=True,
                only="terminal",
            ),
            Argument(
                "with_words",
                "flag",
                "--words",
                help="With --json: words as they come, a line each, before the document.",
                only="terminal",
            ),
            Argument("is_quick", "flag", "--no-wait", help="Do not wait for the answer.", only="terminal"),
            KEY,
        ),
        routes=(calls("ask", "run"),),
        role="contributor",
        is_repeatable=True,
        answer=(*ANSWER, *HELD),
    ),
    Verb(
        name="talk",
        section="Act",
        words="a whole conversation with a session's agent, in the terminal",
        help="""A whole conversation with a session's agent, in the terminal. Ctrl-D ends it.

        What you type is asked as `wakeful ask` asks it, in the same conversation, and answered word by word. /help
        lists what else you can type: another agent for one message, a new conversation, thoughts shown or folded.
        Ctrl-C stops the answer. What the agent asks you is answered in place. The prompt tells what the
        conversation has cost since you began.""",
        examples=(
            "wakeful talk api-docs",
            "wakeful talk api-docs --fresh",
        ),
        arguments=(
            NAME,
            Argument(
                "fresh",
                "flag",
                "--fresh",
                help="Begin a new conversation; else your last one goes on.",
                only="terminal",
            ),
            Argument(
                "with_thoughts",
                "flag",
                "--thinking/--no-thinking",
                help="Show the agent's thoughts, dimmed; /thinking changes it.",
                default=True,
                only="terminal",
            ),
        ),
        routes=(calls("ask", "run"),),
        role="contributor",
    ),
    Verb(
        name="send",
        section="Act",
        words="put a message in a session's mailbox",
        help="Put a message in a session's mailbox. Inside a run its own session is the sender.",
        examples=(
            "wakeful send payroll 'the rates changed'",
            "wakeful send payroll 'for later' --no-wake",
        ),
        arguments=(
            NAME,
            Argument("text"),
            Argument(
                "wake",
                "flag",
                "--no-wake",
                help="Put it in the mailbox without waking the session.",
                default=True,
                flag_value=False,
            ),
            KEY,
        ),
        routes=(calls("send", "send", is_for_runs=True),),
        role="contributor",
        is_repeatable=True,
        answer=(*ANSWER, *HELD),
    ),
    Verb(
        name="note",
        section="Act",
        words="leave a hand-off for the next run",
        help="Leave a hand-off for the next run. Inside a run: note TEXT; outside: note NAME TEXT.",
        examples=(
            "wakeful note payroll 'done: March; next: April'",
            "wakeful note 'done: March'      # inside a run",
        ),
        arguments=(
            Argument("name", is_required=True, only="http"),
            Argument("text", is_required=True, only="http"),
            Argument("words", metavar="[NAME] TEXT", is_repeated=True, completion="session", only="terminal"),
            KEY,
        ),
        routes=(calls("note", "send", is_for_runs=True),),
        undo="rewind",
        role="contributor",
        is_repeatable=True,
        answer=ANSWER,
    ),
    Verb(
        name="remember",
        section="Act",
        words="keep a fact",
        help="Keep a fact. Inside a run: remember KEY VALUE; outside: remember NAME KEY VALUE.",
        examples=(
            "wakeful remember payroll currency EUR --because 'the contracts'",
            "wakeful remember currency EUR   # inside a run",
        ),
        arguments=(
            Argument("name", is_required=True, only="http"),
            Argument("key", is_required=True, only="http"),
            Argument("value", is_required=True, only="http"),
            Argument("words", metavar="[NAME] KEY VALUE", is_repeated=True, completion="named key", only="terminal"),
            Argument("rationale", option="--because", help="Why, kept with the fact.", metavar="TEXT"),
            Argument("confidence", "decimal", "--confidence", help="How sure it is, from 0 to 1.", least=0, most=1),
            Argument("source", "number", "--source", help="The record it was drawn from.", metavar="SEQ", least=1),
            Argument(
                "for_now", "flag", "--for-now", help="Only for the present conversation: a fresh start clears it."
            ),
            KEY,
        ),
        routes=(calls("remember", "send", is_for_runs=True),),
        undo="forget",
        role="contributor",
        is_repeatable=True,
        answer=ANSWER,
    ),
    Verb(
        name="forget",
        section="Act",
        words="let a fact go; the log keeps that it was known",
        help="Let a fact go; the log keeps that it was known.",
        examples=("wakeful forget payroll currency --because 'it differs by country'",),
        arguments=(
            NAME,
            Argument("key", metavar="KEY", completion="fact"),
            Argument("rationale", option="--because", help="Why, kept in the log.", metavar="TEXT"),
            Argument("for_now", "flag", "--for-now", help="A key of the present conversation's memory."),
            KEY,
        ),
        routes=(calls("forget", "send"),),
        undo="remember",
        role="contributor",
        is_repeatable=True,
        is_dangerous=True,
        answer=ANSWER,
    ),
    Verb(
        name="todo",
        section=None,
        words="change a session's to-do list",
        help="Replace the items of the to-do list, or mark items by their numbers. An agent's tool, and no command.",
        arguments=(
            Argument("name", is_required=True, only="http"),
            Argument(
                "items", is_repeated=True, help="The texts of a new list; without it the list stays.", only="http"
            ),
            Argument(
                "open",
                "number",
                is_repeated=True,
                default=(),
                help="Numbers of items that are open again.",
                only="http",
            ),
            Argument(
                "doing", "number", is_repeated=True, default=(), help="Numbers of items that are begun.", only="http"
            ),
            Argument(
                "done", "number", is_repeated=True, default=(), help="Numbers of items that are done.", only="http"
            ),
        ),
        routes=(calls("todo", "send", is_for_runs=True),),
        undo="rewind",
        role="contributor",
        is_repeatable=True,
        answer=ANSWER,
    ),
)
