"""Sentences that claim a tag, and sentences that only mention it."""

from __future__ import annotations

import pytest

from ralph.core import mentions

HONEST = (
    *(
        "Both functions are in place and their tests pass.",
        "The build works once again",
        "Done:",
        "Therefore",
    ),
    "It did not compile when I began, and would not link; now it does:",
    "There was a bug that I could not see; fixed:",
    "I fixed what did not work -",
    "I removed what should never have been there:",
    "It would not build before; it does now",
    "Nothing would break if you merged it now:",
    "You should now see the greeting:",
    "You will find the report in out/; all is green:",
    "The migration must be run by hand, otherwise it is complete:",
    "If you want to see it, run make. Done:",
    "When I ran the suite again, everything was green:",
    "Once I had fixed the import, all tests passed:",
    "The tests that failed when I started now pass, so I say",
    "The parser no longer crashes when the input is empty:",
    "The retry stops once the server answers:",
    "The job retries until the lock is free",
    "Unless I missed something, it is all done:",
    "It should print 5 and now it does:",
    "hello.sh prints hello, as it must:",
    "The program does not print anything else",
    "It never ends with an error now",
    "The endpoint replies with JSON",
    "I wrote no tests for it:",
    "I will write more tests tomorrow, but this is finished:",
    "I will add docs in another change; this task is complete:",
    "I would say this is finished:",
    "Everything that should be written is written",
    "Everything you asked for is done:",
    "It does what you asked for",
    *(
        "As you asked:",
        "As promised:",
        "My final answer:",
        "Answer:",
        "Completion promise:",
        "The verdict is",
    ),
    *("Nothing more to add:", "No issues to report:", "No open points:", "Without further ado:"),
    *("Not a single test fails", "Open points: none", "Errors: none. Warnings: none."),
    *(
        "I can finally say",
        "All tests pass, so I print",
        "I hereby declare",
        "I am ready to say",
        "Let me print",
    ),
    *(
        "I will now print the tag:",
        "Finished; ending with",
        "This answer ends with",
        "This completes the task:",
    ),
    "Since everything is complete, I'll print the completion tag now:",
    "I am announcing completion:",
    *("Next steps: none", "Added an example", "Errors are now printed to stderr", "It works as before"),
    *("The previous run ended with an error, this one passed", "The module contains everything"),
    *("Ich gebe jetzt das Tag aus:", "Die Klasse sollte jetzt 0 liefern:", "Es gibt keine Fehler mehr"),
    *("L'erreur ne devrait plus apparaître :", "No queda nada por hacer:"),
)

DECOYS = (
    *("I will print", "I'll end my answer with", "I would print", "I am going to print", "I shall write"),
    "I will print, at the very end of my answer,",
    "I will say it when the notes are written:",
    "I will fix it and then print",
    "Status: not done. Will print when done:",
    "When everything is done, and only then, end your answer with",
    "When all tests pass I print",
    "As soon as the notes are written, I print",
    "Once the notes are written,",
    "If all tests pass:",
    "After the tests pass I print",
    "The loop ends when the agent prints",
    "The agent must print",
    "Before printing",
    "At the end I print",
    "Only then do I print",
    "I need to finish the notes and print",
    "I have yet to print",
    "You asked me to print",
    "I can only print",
    "Should I print",
    "What I will print is",
    "My next answer will be",
    *("Todo:", "Not yet:", "- [ ]", "Remaining: notes, then"),
    *("I cannot print", "So I won’t print", "I CANNOT PRINT", "Never print", "I have not said", "Not"),
    "I cannot say that main.py is",
    "I am not ready to say",
    "I have not yet earned",
    "There is no",
    "It is not time for",
    "I stop without",
    "Instead of",
    "Rather than printing",
    "I hold back",
    *("Finally print", "1. print", "Please print", "The agent prints", "The notes say:", "The tag is"),
    "It would be wrong to print",
    "In the last iteration I printed",
    "The harness expects",
    "The loop waits for",
    "You asked for",
    "I was told:",
    "Your instructions were:",
    "docs/loop.md:",
    "For example:",
    *("I would have said", "I'd have printed", "I almost said", "I'd love to say", "I refuse to say"),
    *(
        "The last agent wrongly said",
        "The previous iteration ended with",
        "The file README.md contains the line",
    ),
    *(
        "I'm not emitting",
        "Before declaring",
        "Without stating",
        "It's too early for",
        "It would be premature to claim",
    ),
    *(
        "Two tests to go until",
        "I am far from",
        "One more round before",
        "Tomorrow:",
        "My last line is going to be",
    ),
    *("My plan: 1) fix lint 2)", "Expected final output:", "Here is a sample:", "I withhold"),
    *("echo '", "~~", "<!--", "<code>", "<pre>\n"),
    *("Ich kann", "Ich werde", "Sobald die Tests grün sind, gebe ich", "Noch nicht", "Noch kein"),
    *("Je ne peux pas encore dire", "J'écrirai", "Je ne dois pas écrire", "Pas encore"),
    *("Todavía no puedo decir", "Cuando pasen las pruebas, imprimiré", "No debo imprimir"),
)


@pytest.mark.parametrize("end", [" ", "\n"], ids=["same line", "next line"])
@pytest.mark.parametrize("sentence", HONEST)
def test_a_tag_after_an_ordinary_sentence_is_a_claim(sentence: str, end: str) -> None:
    """Modal verbs, conditions and negations of something else do not matter, on the same line or before it."""
    assert not mentions.before(sentence + end)


@pytest.mark.parametrize("sentence", DECOYS)
def test_a_tag_as_the_object_of_a_sentence_is_only_mentioned(sentence: str) -> None:
    """The tag that will, would, should or must not be said is not said, nor one that somebody else says."""
    assert mentions.before(f"{sentence} ")


@pytest.mark.parametrize(
    "lines",
    [
        "The loop ends when the agent prints\n",
        "I cannot yet print\n    ",
        "I will print:\n- ",
        "When everything is done, end your\nanswer with ",
        "The task says to end the answer with this line:\n\n",
        "I will print it when the notes are there:\n\n",
    ],
)
def test_a_sentence_continues_over_a_line_break(lines: str) -> None:
    """Also over an empty line after a colon, which introduces the tag."""
    assert mentions.before(lines)


@pytest.mark.parametrize(
    "lines",
    [
        "I will print it later.\n",
        "What I will print\n\n",
        "> The agent must print\n",
        "- I will print more\n- Done ",
        "I could not fix the docs, I will write about that\n",
    ],
)
def test_a_sentence_ends(lines: str) -> None:
    """At a full stop, at an empty line, with a quotation and with a list item."""
    assert not mentions.before(lines)


@pytest.mark.parametrize(
    "behind",
    [
        " would be wrong",
        " is not right, as a test fails",
        "** must wait",
        " comes when the notes are written",
        " once all tests pass",
        ", once the notes are written",
        " (not yet)",
        ", but not yet",
        " as the last line of the answer",
        "? No.",
        " now?",
        *(" now would be a lie", " depends on the review", " noch nicht", ", sobald die Tests laufen"),
    ],
)
def test_a_sentence_that_continues_behind_the_tag(behind: str) -> None:
    """What follows in the same sentence can make it a mention."""
    assert mentions.after(behind)


@pytest.mark.parametrize(
    "behind",
    [
        *(
            "",
            ".",
            "**",
            " more text",
            ". It was not easy.",
            " - not easy, but done",
            " (finally!)",
            " as requested",
        ),
        *(
            " now that it builds",
            " is my answer",
            *(", if you ask me", ", wenn du mich fragst"),
            " If you need more, tell me.",
            " Again, thanks!",
        ),
    ],
)
def test_a_claim_may_be_followed_by_more(behind: str) -> None:
    """Thanks, remarks and new sentences do not matter."""
    assert not mentions.after(behind)
