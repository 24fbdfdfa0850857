"""The needle corpus: conversations of eight formats made from the committed templates in needle_data/, always the same.

    dialogue      [question, harder question, what the person said, what the assistant said]; the answer is in either.
                  By rule a question shares a content word with the whole exchange (compared by their first five
                  letters), but at most half of its own, and no three words in a row
    paraphrase    the harder questions to the same answers: not one content word is shared
    identifiers   tokens of which other sessions hold look-alikes: one sign, one part or one line number differs
    tool          [question, harder question or nothing, command, line of output], among other lines of output; other
                  sessions ran the same commands. A question shares a content word with command or line, and no three
                  words in a row with the line; a harder one (class "tool paraphrase") not one
    dates         the same statement on three dates; the filter decides which is meant
    languages     question and answer in one language with shared words; other sessions mention each topic three
                  times without the answer. English is the parallel set

Around them stands a haystack of made-up conversations on sixteen topics.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import common
import needle_formats
from needle_formats import Exchange, Talk

DATA = Path(__file__).parent / "needle_data"
LANGUAGES = ("en", "de", "ru", "zh", "ja", "th", "ko")
START = datetime(2025, 1, 6, 8, tzinfo=UTC)
_CODING = ("claude-code", "codex", "gemini")
_DATED = tuple(name for name in needle_formats.WRITERS if name != "markdown")


@dataclass(frozen=True, slots=True)
class Needle:
    """A question and the words that a right hit holds. Questions of one group are in the same half."""

    name: str
    kind: str
    question: str
    proof: str
    group: str
    filters: dict[str, Any] = field(default_factory=dict)

    @property
    def half(self) -> str:
        return common.half_of(self.group)


@dataclass(slots=True)
class Corpus:
    """All conversations, and what is asked."""

    talks: list[Talk] = field(default_factory=list)
    needles: list[Needle] = field(default_factory=list)
    strays: list[Exchange] = field(default_factory=list)  # look-alikes and mentions: the haystack takes them in


def build(haystack: int = 420) -> Corpus:
    """The corpus with so many conversations around the needles."""
    corpus = Corpus()
    words = json.loads((DATA / "words.json").read_text(encoding="utf-8"))
    for add in (_dialogue, _identifiers, _tools, _dates, _languages):
        add(corpus, words)
    _haystack(corpus, words, haystack)
    return corpus


def write(corpus: Corpus, folder: Path) -> str:
    """Write the files; the sha256 of all of them and of the questions."""
    needle_formats.write(corpus.talks, folder)
    asked = [[one.name, one.question, one.proof, str(sorted(one.filters.items()))] for one in corpus.needles]
    whole = hashlib.sha256(json.dumps(asked).encode())
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        whole.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()


def shared(question: str, text: str) -> float:
    """The share of a question's content words (by their first five letters) that a text has."""
    asked = {word[:5] for word in common.content_words(question)}
    return len(asked & {word[:5] for word in common.content_words(text)}) / max(1, len(asked))


def quotes(question: str, text: str) -> bool:
    """Whether three words in a row of a question stand in a text."""
    asked, said = (re.findall(r"\w+", one.casefold()) for one in (question, text))
    runs = {tuple(said[at : at + 3]) for at in range(len(said) - 2)}
    return any(tuple(asked[at : at + 3]) in runs for at in range(len(asked) - 2))


# --- needles ------------------------------------------------------------------------------------------------


def _talk(name: str, middle: list[Exchange], words: Any, *, formats: tuple[str, ...] = ()) -> Talk:
    """A conversation about one thing: these exchanges, and pleasantries behind them."""
    chance = common.stable("talk", name)
    format = chance.choice(formats or tuple(needle_formats.WRITERS))
    start = START + timedelta(minutes=chance.randrange(60 * 24 * 400))
    project = chance.choice(words["tool_words"])
    behind = [Exchange(*pair) for pair in chance.sample(words["closers"], 1 + chance.randrange(3))]
    return Talk(name, format, start, project, [*middle, *behind])


def _lines(name: str) -> list[Any]:
    return [json.loads(line) for line in (DATA / name).read_text(encoding="utf-8").splitlines()]


def _dialogue(corpus: Corpus, words: Any) -> None:
    for number, (question, harder, person, assistant) in enumerate(_lines("dialogue.jsonl")):
        said = f"{person} {assistant}"
        if not 0 < shared(question, said) <= 1 / 2 or shared(harder, said) or quotes(question, said):
            raise SystemExit(f"question {number} of dialogue.jsonl breaks the rule: {question} {harder}")
        group = f"dialogue-{number:02}"
        corpus.talks.append(_talk(group, [Exchange(person, assistant)], words))
        corpus.needles.append(Needle(f"dialogue-{number:02}", "dialogue", question, person, group))
        corpus.needles.append(Needle(f"paraphrase-{number:02}", "paraphrase", harder, person, group))


def _tools(corpus: Corpus, words: Any) -> None:
    for number, (question, harder, command, output) in enumerate(_lines("tool.jsonl")):
        name = f"tool-{number:02}"
        said = f"{command} {output}"
        if not shared(question, said) or quotes(question, output) or shared(harder, said):
            raise SystemExit(f"question {number} of tool.jsonl breaks the rule: {question} {harder}")
        chance = common.stable(name)
        lines = [_printed(chance, words)[1] for _ in range(4 + chance.randrange(6))]
        lines.insert(chance.randrange(len(lines)), output)
        exchange = Exchange("Run that and tell me.", "Done, see above.", command, "\n".join(lines))
        corpus.talks.append(_talk(name, [exchange], words, formats=_CODING))
        corpus.needles.append(Needle(name, "tool output", question, output, name, {"include": ["tool"]}))
        if harder:
            corpus.needles.append(Needle(f"{name}-p", "tool paraphrase", harder, output, name, {"include": ["tool"]}))


_SERIES = (
    ("which build left with the release train", "The release train left with build {} today."),
    ("how many tickets were open at the stand-up", "At the stand-up we counted {} open tickets."),
    ("what did the solar panels yield", "The solar panels gave {} kilowatt hours."),
    ("what was the weight on the scale", "The scale said {} this morning."),
    ("how many kilometres was the long run", "Long run done, {} hundred metres in all."),
    ("what is the price of a barrel in the sheet", "The sheet has the barrel at {} cents."),
    ("which room was the board meeting in", "The board meeting is in room {}."),
    ("how many visitors had the museum", "The museum had {} visitors."),
)


def _dates(corpus: Corpus, words: Any) -> None:
    for number, (question, statement) in enumerate(_SERIES):
        days = [START + timedelta(days=60 * number + 40 * at + 10) for at in range(3)]
        windows: list[dict[str, Any]] = [
            {"until": days[1] - timedelta(days=3)},
            {"since": days[1] - timedelta(days=3), "until": days[1] + timedelta(days=3)},
            {"since": days[2] - timedelta(days=3)},
        ]
        for at, (day, window) in enumerate(zip(days, windows, strict=True)):
            name = f"date-{number:02}-{at}"
            proof = statement.format(300 + 17 * number + 101 * at)
            talk = _talk(name, [Exchange("For the log of today.", proof)], words, formats=_DATED)
            talk.start = day
            corpus.talks.append(talk)
            corpus.needles.append(Needle(name, "dates", question, proof, f"date-{number:02}", window))


def _languages(corpus: Corpus, words: Any) -> None:
    for number, item in enumerate(_lines("languages.jsonl")):
        for language in LANGUAGES:
            question, fact, topic = item[language]
            name = f"{language}-{number:02}"
            opener = words["openers"][language][number % 4]
            corpus.talks.append(_talk(name, [Exchange(opener, fact)], words))
            corpus.needles.append(Needle(name, f"language {language}", question, fact, f"language-{number:02}"))
            corpus.strays += [
                Exchange(words["openers"][language][at], mention.format(topic=topic))
                for at, mention in enumerate(words["mentions"][language])
            ]


# --- identifiers --------------------------------------------------------------------------------------------

_PART_TEXT = """retry backoff limit queue drain shard lease token session cursor batch window parser ledger anchor
vector packet signal restaurant bridge mirror orbit tariff beacon"""
_PARTS = _PART_TEXT.split()
_SENTENCES = (
    "We traced it to {} in the end.",
    "It was {} that had the wrong value.",
    "Look at {} first, the rest follows from it.",
    "The culprit is {}, I corrected it there.",
)


def _identifiers(corpus: Corpus, words: Any) -> None:
    tokens = list(_tokens())
    if {exact for exact, _ in tokens} & {other for _, alike in tokens for other in alike}:
        raise SystemExit("a token is another's look-alike")
    for number, (exact, alike) in enumerate(tokens):
        name = f"identifier-{number:02}"
        sentence = _SENTENCES[number % len(_SENTENCES)]
        exchange = Exchange("What was it in the end?", sentence.format(exact))
        corpus.talks.append(_talk(name, [exchange], words))
        corpus.needles.append(Needle(name, "identifiers", exact, sentence.format(exact), name))
        for at, other in enumerate(alike):
            again = f" Again {other}, as before." if at == 0 else ""
            said = _SENTENCES[(number + at) % len(_SENTENCES)].format(other) + again
            corpus.strays.append(Exchange("And this one?", said))


def _tokens() -> Iterator[tuple[str, list[str]]]:
    """Tokens and their look-alikes: 50 in all."""
    makers = {"snake": 8, "camel": 8, "path": 8, "error": 7, "hash": 6, "address": 6, "ticket": 7}
    for kind, count in makers.items():
        for number in range(count):
            chance = common.stable("identifier", kind, number)
            exact, *alike = _MAKERS[kind](chance)
            yield exact, [one for one in dict.fromkeys(alike) if one != exact]


def _snake(chance: Random) -> list[str]:
    a, b, c, d = chance.sample(_PARTS, 4)
    upper = chance.random() < 0.4
    found = [f"{a}_{b}_{c}", f"{a}_{c}_{b}", f"{a}_{b}_{c}s", f"{a}_{b}_{d}", f"{a} {b} {c}"]
    return [one.upper() if upper and "_" in one else one for one in found]


def _camel(chance: Random) -> list[str]:
    a, b, c, d = (one.title() for one in chance.sample(_PARTS, 4))
    first = chance.choice([f"get{a}{b}{c}", f"{a}{b}{c}"])
    return [first, first.replace(c, d), first.replace(b, ""), first + "Async", f"{a} {b} {c}"]


def _path(chance: Random) -> list[str]:
    a, b, c = chance.sample(_PARTS, 3)
    line = chance.randrange(20, 400)
    path = chance.choice([f"src/{a}/{b}.py", f"lib/{a}_{b}.rs", f"cmd/{a}/{b}/main.go"])
    return [f"{path}:{line}", f"{path}:{line + 1}", f"{path}:{line}7", path, f"{path.replace(b, c)}:{line}"]


def _error(chance: Random) -> list[str]:
    number = chance.randrange(1000, 9000)
    form = chance.choice(["E{:04}", "ORA-{:05}", "TS{}", "0x8007{:04X}", "SQLSTATE-{}", "ERR_{}_DLOPEN", "HTTP-{}-b"])
    return [form.format(number), *(form.format(number + step) for step in (1, -1, 10))]


def _hash(chance: Random) -> list[str]:
    exact = "".join(chance.choice("0123456789abcdef") for _ in range(64))
    flip = {sign: "0123456789abcdef"[(at + 1) % 16] for at, sign in enumerate("0123456789abcdef")}
    return [exact, exact[:-1] + flip[exact[-1]], flip[exact[0]] + exact[1:], exact[:30] + flip[exact[30]] + exact[31:]]


def _address(chance: Random) -> list[str]:
    a, b, c = chance.sample(_PARTS, 3)
    return [f"{a}.{b}@{c}.example", f"{a}.{b}@{c}.test", f"{a}{b}@{c}.example", f"{b}.{a}@{c}.example"]


def _ticket(chance: Random) -> list[str]:
    signs = "abcdefghjkmnpqrstuvwxyz23456789"
    prefix = chance.choice(["bd", "ops", "PROJ", "kiln"])
    body = "".join(chance.choice(signs) for _ in range(4))
    other = "".join(reversed(body))
    return [f"{prefix}-{body}", f"{prefix}-{other}", f"{prefix}-{body[:3]}{chance.choice(signs)}", f"zz-{body}"]


_MAKERS = {
    "snake": _snake,
    "camel": _camel,
    "path": _path,
    "error": _error,
    "hash": _hash,
    "address": _address,
    "ticket": _ticket,
}


# --- the haystack -------------------------------------------------------------------------------------------


def _haystack(corpus: Corpus, words: Any, count: int) -> None:
    """Conversations on a topic each; the strays are dealt out among them."""
    talks = []
    names = list(needle_formats.WRITERS)
    for number in range(count):
        chance = common.stable("haystack", number)
        start = START + timedelta(minutes=chance.randrange(60 * 24 * 400))
        format = names[number % len(names)]
        exchanges = _about(chance, words)
        if format in _CODING:
            for _ in range(chance.randrange(3)):
                command, output = _printed(chance, words)
                more = "\n".join([output, *(_printed(chance, words)[1] for _ in range(chance.randrange(8)))])
                exchanges.append(Exchange("Check that.", "It looks as before.", command, more))
        talks.append(Talk(f"haystack-{number:04}", format, start, chance.choice(words["tool_words"]), exchanges))
    for at, stray in enumerate(corpus.strays):
        talk = talks[common.stable("stray", at).randrange(len(talks))]
        talk.exchanges.insert(common.stable("place", at).randrange(len(talk.exchanges) + 1), stray)
    corpus.talks += talks


def _about(chance: Random, words: Any) -> list[Exchange]:
    """Two to four exchanges on one topic."""
    topic = words["topics"][chance.choice(list(words["topics"]))]
    thing, thing2 = chance.sample(topic["thing"], 2)
    problem, problem2 = chance.sample(topic["problem"], 2)
    fix, fix2 = chance.sample(topic["fix"], 2)
    slots = {
        "thing": thing,
        "thing2": thing2,
        "problem": problem,
        "problem2": problem2,
        "fix": fix,
        "fix2": fix2,
        "Thing": thing[0].upper() + thing[1:],
        "Fix": fix[0].upper() + fix[1:],
        "place": chance.choice(words["places"]),
    }
    opening = (chance.choice(words["prompts"]), chance.choice(words["answers"]))
    pairs = [opening, *chance.sample(words["follow"], 1 + chance.randrange(3))]
    return [Exchange(said.format(**slots), answer.format(**slots)) for said, answer in pairs]


def _printed(chance: Random, words: Any) -> tuple[str, str]:
    """A command and what it printed."""
    w, v, u = chance.sample(words["tool_words"], 3)
    numbers = {"n": chance.randrange(100, 999), "m": chance.randrange(2, 90), "s": chance.randrange(1, 60)}
    marks = {"h": f"{chance.randrange(16**10):010x}", "h2": f"{chance.randrange(16**10):010x}"}
    command, output = chance.choice(list(words["outputs"].items()))
    slots = {"w": w, "v": v, "u": u, **numbers, **marks}
    return re.sub(r"\{w\}|\{v\}", lambda match: str(slots[match[0][1]]), command), output.format(**slots)
