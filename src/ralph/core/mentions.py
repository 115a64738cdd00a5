"""Tell a sentence that claims the tag from one that only mentions it.

The tag after any ordinary sentence is a claim: "The build works once again <tag>". It is a mention as the object of a
verb of saying that is ordered, planned, denied, conditional or somebody else's: "I will print <tag>", "Never say <tag>",
"When all is done, end your answer with <tag>", "The loop ends when the agent prints <tag>". It is a mention too where its
sentence continues behind it: "<tag> would be wrong". When in doubt it is a mention: the agent is told, and says it again.
"""

from __future__ import annotations

import re

MAX_SENTENCE = 300
"""Number of characters before the tag that are read."""

_START = re.compile(
    r"""(?<![.])(?<!\be\.g)(?<!\bi\.e)[.!?](?!\.)["'”’)*_\]]*(?=\s|$)\s*   # the end of another sentence
      | </\w+>                                                                # another tag
      | \n[ \t\r]*\n (?<!:\n\n) | \A[^\n]*\n[ \t\r]*\n(?=\S)(?<!:\n\n)        # an empty line, but not after a colon
      | (?:^|\n)[ \t]*(?:[-*+•]|\d+[.)]|\#{1,6})[ \t]+(?=\S)                  # a list item, a heading
      | (?:^|\n)[ \t]*(?:>|\||│|┃|`{3}|~{3})[^\n]*(?:\n|$)                   # a quotation, a frame, a fence""",
    re.VERBOSE,
)
_MARKS = str.maketrans({"’": "'", "—": ",", "–": ",", "-": "-"} | dict.fromkeys('"“”«»()*_`', " "))

_FILLERS = (
    r"(?:[\s,:]|\b(?:the|a|my|our|your|its?|this|that|following|final|last|very|own|exactly|only|just|simply|so|tags?"
    r"|marker|line|words?|text|answer|message|reply|response|signal|promise|completion|with|as|on|at|to|of|for|in|end"
    r"|alone|itself|there|also|anything|is|be|are|when|once|done|complete|everything|all|like|user|you)\b)*$"
)
_SAY = (
    r"(?:print|output|say|emit|echo|announce|declare|claim|signal|state|write|give|put|add|include|return|post|send|use"
    r"|repeat|report|answer|reply|respond|end|finish|conclude|close)"
)
_SAYING = (
    rf"(?:{_SAY}(?:ing)?"
    r"|emitting|announcing|declaring|stating|writing|giving|putting|including|using|concluding|closing)"
)
_SAID = r"(?:said|printed|written|wrote|output|emitted|announced|declared|claimed|given|put|sent|(?:ended|finished|closed) with)"
_GOVERNED = (
    r"(?:will(?! now)|would|should|shall|must|may|might|could|cannot|can't|can not|can only|won't|\w+n't|not|never|going to"
    r"|(?:want|need|plan|intend|have|has|had|yet|told|asked|supposed|about|expected|wait|ready|try)(?:s|ed)? to"
    r"|(?:refuse|decline|hesitate|love|like|hope|wish|tempt|unable)(?:s|d|ed)? to"
    r"|asked (?:me|us|you|it) to|tells? (?:me|us|you|it) to|before|until|unless|instead of|rather than|without|when|once"
    r"|if|after|as soon as|only then|at the end|next|finally|please|then)"
)
_BEFORE = tuple(
    re.compile(pattern)
    for pattern in (
        # will print, cannot say, before printing, when all tests pass I print
        rf"(?<!\bi am )(?<!\bi can )\b{_GOVERNED}(?: (?!now\b)[\w'/]+){{0,5}}? {_SAYING}\b{_FILLERS}",
        # I will say it when …; I cannot say that …: whatever follows
        r"(?:^|[,;:]\s|\band |\bthen )(?:i|we|you|the agent)(?:'ll|'d| will| would| shall| should| must| am going to)"
        r"(?! now)(?: \w+){0,6}? (?:print|output|emit|say it|say so|say the|end my answer|end with)\b(?!.*\bnow[\s:,]*$)",
        r"\bi (?:can ?not|can't|won't|will not|do not|don't)(?: \w+)? (?:print|output|emit|say|claim|declare)\b",
        # an order: at the start of a clause
        rf"(?:^|[,;:]\s*|\b(?:and|then) )(?:{_SAY}(?<!answer)(?<!reply)(?<!promise)|answer with|reply with)\b{_FILLERS}",
        # somebody else says it
        rf"\b(?!this\b|answer\b)\w+ (?:says|prints|outputs|emits|expects|wants|requires|waits for|ends with)\b{_FILLERS}",
        rf"\b(?:notes|docs|files|logs|instructions|rules|agents|they) (?:say|print|output|expect|want|require)\b{_FILLERS}",
        r"\bi (?:said|printed|wrote|was told|am told)\b[\s:]*$",
        # would have said, almost said, the last agent said
        rf"(?:'d|\b(?:would|could|should|might)(?:n't| not| never)?) (?:\w+ )?have (?:\w+ )?{_SAID}\b{_FILLERS}",
        rf"\b(?:almost|nearly|wrongly|falsely|prematurely|already|earlier) {_SAID}\b{_FILLERS}",
        rf"\b(?:agent|iteration|run|session|message|it|they|someone|somebody|prompt) (?:\w+ly )?{_SAID}\b{_FILLERS}",
        rf"\b(?:contains?|contained|mentions?|mentioned|shows|showed)\b(?! everything| all){_FILLERS}",
        rf"^(?:once|if|when|as soon as|after)\b[^;:]*, (?:i|we) {_SAY}\b{_FILLERS}",
        r"^(?:(?:in|from|see|file) )?\S*[./]\w+(?: says| has)?:\s*$",
        r"\b(?:for example|for instance|such as|e\.g\.|instructions? (?:is|are|was|were)|(?:tag|marker|line|word) is"
        r"|^you asked for|asked to|^instead of|^rather than|(?:hold|holding) back|withhold(?:ing)?)[\s:,]*$",
        r"\b(?:example|sample|template|snippet|expected(?: \w+){1,3}):\s*$",
        r"(?:~~|<!--|<(?:pre|code|samp|kbd|blockquote|q)>|(?<!\S)')\s*$",
        # denied or postponed without a verb
        r"(?<!: )\b(?:no|not|never|without|nor)(?: (?:the|a|any|my|yet|time for))*\s*$",
        r"\b(?:not|never|n't)(?: yet)? (?:said|printed|written|earned?|deserved?|due|justify|justified|ready to say)\b"
        + _FILLERS,
        rf"\b(?:too (?:early|soon)|premature|wrong|dishonest) (?:for|to {_SAYING})\b{_FILLERS}",
        r"\b(?:until|towards?|short of|far from|closer? to|get(?:ting)? to|(?:round|iteration|step|turn)s? before)\s*$",
        r"^(?:my |the )?(?:plan|next steps?): (?!none|nothing)",
        r"^\W*(?:and |but )?(?:once|if|when|whenever|as soon as|after|until|unless)\b[^,;:]*[,:]\s*$",
        r"(?:\btodo|\bto do|\bnot yet|\bremaining|\bnext|\bthen|\blater|\btomorrow|\beventually|\bin the next \w+"
        r"|\bwill be|\bgoing to be|\bmust be|\bwould be|\[ ?\])[\s:,]*$",
        # German, French, Spanish
        r"\bich (?:kann|werde|darf|soll(?:te)?|muss|müsste|hätte|würde|könnte)(?: (?:noch|erst|nicht|dann|später|das|die))*\s*$",
        r"\b(?:sobald|wenn|falls|nachdem)\b[^.;:]*\b(?:gebe|sage|schreibe|melde|antworte) ich(?: \w+){0,2}\s*$",
        r"\b(?:noch (?:nicht|kein)|pas encore|todavía no|aún no)[\s:,]*$",
        r"\b(?:pas|dois|devrais|voudrais|pourrais|avant de|sans)(?: encore)? (?:dire|écrire|afficher|imprimer|émettre)\s*$",
        r"\b(?:no puedo|debo|debería|quiero|voy a|antes de|sin) (?:decir|escribir|imprimir|mostrar|emitir)\s*$",
        r"\b(?:(?:dir|écrir|afficher|imprimer|émettr)ais?|(?:dir|escribir|imprimir|mostrar|emitir)(?:é|ía))\s*$",
    )
)
_BEHIND = re.compile(
    r"""[*_"'”’)]*(?:\s*[,(–—-]+\s*(?:but\s+)?(?=once|as\ soon|until|unless|not\ yet|later|yet|will|would|should|must|cannot
        |sobald|quand|cuando)
      |\s+(?:(?:but|and|now|here)\s+)?)
    (?:will|would|should|shall|must|may|might|could|can(?:not|['’]t)?|won['’]t|\w+n['’]t|(?:is|was)\ (?!my|now|what)
      |has\ to|comes?|follows?|waits?|yet|later|after|once|when|until|unless|if|before|as\ soon\ as|then|next|soon|means|depends
      |noch\ nicht|erst|sobald|wenn|quand|cuando|hasta
      |not\ yet|as\ the\ (?:very\ )?(?:last|final)|too\ (?:early|soon))\b
      | [*_"'”’)]*\s*\? | [*_"'”’)]*\s+[a-z][^.!?\n:]{0,100}\?""",
    re.VERBOSE,
)


def before(text: str) -> bool:
    """Whether a tag after this text, which may include earlier lines, is only mentioned."""
    text = text[-MAX_SENTENCE:]
    sentence = text[max((start.end() for start in _START.finditer(text)), default=0) :]
    plain = " ".join(sentence.lower().translate(_MARKS).split()) + " "
    return any(pattern.search(plain) for pattern in _BEFORE)


def after(text: str) -> bool:
    """Whether a tag before this text, the rest of its line, is only mentioned."""
    return _BEHIND.match(text) is not None
