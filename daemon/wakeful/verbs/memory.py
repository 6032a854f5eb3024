"""The verbs that send or store something in a session: messages, questions, hand-offs, facts, the to-do list."""

from __future__ import annotations

from wakeful.verbs.verb import ANSWER, HELD, KEY, NAME, Argument, Verb, calls

VERBS = (
    Verb(
        name="ask",
        section="Act",
        words="ask a session's agent a question, and print the answer",
        help="""Ask a session's agent a question and wait for the answer. Exit 1 if none came.

        Your questions to a session are one conversation, until --fresh starts a new one. If TEXT is `-` or absent,
        standard input is the question. If both are given, standard input is appended to TEXT. With --agent, another
        agent answers in the same session, with its own prompt, model and tools; the next message goes to the
        session's own agent again. The cost is printed on a terminal, and is `usage` in --json. It counts for the
        agent that answered.""",
        examples=(
            "wakeful ask api-docs 'Which routes have no docs yet?'",
            "wakeful ask payroll 'Is this safe?' --agent security --fresh",
            "git diff | wakeful ask api-docs 'Do the docs mention this?'",
            "cat question.txt | wakeful ask api-docs",
        ),
        arguments=(
            NAME,
            Argument("text", on_terminal="optional"),
            Argument(
                "agent",
                option="--agent",
                help="The agent that answers this one message. Default: the session's own agent.",
                metavar="NAME",
            ),
            Argument(
                "fresh",
                "flag",
                "--fresh",
                help="Start a new conversation, with only facts and hand-off. Default: continue your last one.",
            ),
            Argument(
                "with_thoughts",
                "flag",
                "--thinking/--no-thinking",
                help="Show the agent's thoughts, dimmed, on a terminal.",
                default=True,
                only="terminal",
            ),
            Argument(
                "with_words",
                "flag",
                "--words",
                help="With --json: print the words as they come, one per line, before the document.",
                only="terminal",
            ),
            Argument("is_quick", "flag", "--no-wait", help="Do not wait for the answer.", only="terminal"),
            KEY,
        ),
        cli_module="verbs.ask",
        routes=(calls("ask", "run"),),
        role="contributor",
        is_repeatable=True,
        answer=(*ANSWER, *HELD),
    ),
    Verb(
        name="talk",
        section="Act",
        words="talk to a session's agent in the terminal",
        help="""Talk to a session's agent in the terminal. Ctrl-D ends the conversation.

        Each line is sent as by `wakeful ask`, in the same conversation, and answered word by word. /help lists the
        commands: ask another agent once, start a new conversation, show or hide thoughts. Ctrl-C stops the answer.
        You answer the agent's questions in place. The prompt shows the cost of the conversation since you began.""",
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
                help="Start a new conversation. Default: continue your last one.",
                only="terminal",
            ),
            Argument(
                "with_thoughts",
                "flag",
                "--thinking/--no-thinking",
                help="Show the agent's thoughts, dimmed. /thinking toggles them.",
                default=True,
                only="terminal",
            ),
        ),
        cli_module="verbs.talk",
        routes=(calls("ask", "run"),),
        role="contributor",
        not_a_tool="a conversation in a terminal: wakeful_ask is the same, one question at a time",
    ),
    Verb(
        name="send",
        section="Act",
        words="put a message in a session's mailbox",
        help="Put a message in a session's mailbox. Inside a run, the sender is the run's own session.",
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
        answer=ANSWER,
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
        cli_module="verbs.memory",
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
            Argument("rationale", option="--because", help="The reason, kept with the fact.", metavar="TEXT"),
            Argument("confidence", "decimal", "--confidence", help="How certain it is, 0 to 1.", least=0, most=1),
            Argument("source", "number", "--source", help="The record that it comes from.", metavar="SEQ", least=1),
            Argument(
                "for_now",
                "flag",
                "--for-now",
                help="Keep it in the memory of the present conversation. A fresh start clears it.",
            ),
            KEY,
        ),
        cli_module="verbs.memory",
        routes=(calls("remember", "send", is_for_runs=True),),
        undo="forget",
        role="contributor",
        is_repeatable=True,
        answer=ANSWER,
    ),
    Verb(
        name="forget",
        section="Act",
        words="delete a fact; its history stays in the log",
        help="Delete a fact. Its history stays in the log.",
        examples=("wakeful forget payroll currency --because 'it differs by country'",),
        arguments=(
            NAME,
            Argument("key", metavar="KEY", completion="fact"),
            Argument("rationale", option="--because", help="The reason, kept in the log.", metavar="TEXT"),
            Argument("for_now", "flag", "--for-now", help="KEY is in the memory of the present conversation."),
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
        help="Replace the items of the to-do list, or mark items by their numbers. A tool for agents; not a command.",
        arguments=(
            Argument("name", is_required=True, only="http"),
            Argument("items", is_repeated=True, help="The items of a new list. Default: keep the list.", only="http"),
            Argument(
                "open",
                "number",
                is_repeated=True,
                default=(),
                help="Numbers of items that are open again.",
                only="http",
            ),
            Argument(
                "doing", "number", is_repeated=True, default=(), help="Numbers of items in progress.", only="http"
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
