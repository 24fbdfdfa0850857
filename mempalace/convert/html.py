"""Session -> one HTML page that stands alone: no scripts, nothing loaded, every text escaped.

Dialogue stands open; calls, results, reasoning and what the harness put in are folded away. Signs that nobody sees but
that change what is seen (controls, overrides of the writing direction) are shown by their number.
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Iterator

from mempalace.convert.plan import Plan, count_facts
from mempalace.model import (
    DIALOGUE,
    Block,
    Image,
    Message,
    Origin,
    Role,
    Session,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from mempalace.model_data import format_time
from mempalace.transcript import image_note, render_call

_STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1d2126;--dim:#5c6670;--line:#dde2e7;--user:#eef4fd;--fold:#f6f7f9;
--bad:#b3261e;--link:#1a5fb4}
@media (prefers-color-scheme:dark){:root{--bg:#15181c;--fg:#e4e7ea;--dim:#9aa4ae;--line:#323940;--user:#1d2a3c;
--fold:#1c2026;--bad:#ff8a80;--link:#8ab4f8}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.55 system-ui,sans-serif}
main{max-width:52rem;margin:0 auto;padding:1.5rem 1rem 4rem}
h1{font-size:1.5rem;line-height:1.25;margin:0 0 .5rem;overflow-wrap:anywhere}
header p,.who{color:var(--dim);font-size:.85rem;margin:0}
header{border-bottom:1px solid var(--line);padding-bottom:1rem;margin-bottom:1.5rem}
article{margin:0 0 1.25rem}
.who b{color:var(--fg)}
.words{white-space:pre-wrap;overflow-wrap:anywhere;margin:.15rem 0 0;unicode-bidi:isolate}
.user .words{background:var(--user);border-radius:.5rem;padding:.6rem .8rem}
details{margin:.4rem 0;border:1px solid var(--line);border-radius:.4rem;background:var(--fold)}
summary{cursor:pointer;padding:.35rem .7rem;color:var(--dim);font:.85rem/1.4 ui-monospace,monospace;
overflow-wrap:anywhere;unicode-bidi:isolate}
details>pre,details>.words,details>article,details>section{margin:0;padding:.5rem .7rem}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font:.82rem/1.45 ui-monospace,monospace;
border-top:1px solid var(--line);unicode-bidi:isolate}
summary:focus-visible{outline:2px solid var(--link)}
.bad{color:var(--bad)}
.sign{color:var(--bad);font:.75em ui-monospace,monospace;unicode-bidi:isolate}
img{max-width:100%;height:auto;border-radius:.4rem;display:block;margin:.4rem 0}
@media print{details{break-inside:avoid}}
"""
_POLICY = (
    "default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; style-src 'sha256-"
    + base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    + "'"
)
# Controls, and signs that turn or hide what stands around them (Unicode's bidirectional formatting, zero width, tags).
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_SAFE_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_WHO = {Role.USER: "You", Role.ASSISTANT: "Assistant", Role.SYSTEM: "System", Role.TOOL: "Tool"}


def page(plan: Plan) -> str:
    """The whole page, sub-agents and abandoned branches included. Counts in the plan what it has no place for."""
    session, meta = plan.session, plan.session.metadata
    counts = plan.counts
    counts.clear()  # it shows the messages themselves, and more of them than a tool could take
    count_facts(plan, "project")
    counts["token usage"] = sum(turn.token_usage is not None for turn in session.turns)
    counts["message ids"] = len({message.id for message in session.messages if message.id})
    counts["header records"] = len(meta.headers)
    counts["system prompt"] = meta.system_prompt is not None
    first = next((message.text for message in session.messages if message.origin in DIALOGUE and message.text), "")
    title = " ".join((meta.title or first).split())[:120] or "Session"
    facts = [meta.source or session.format, meta.project, meta.model, format_time(meta.timestamp), session.key]
    lines = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        '<meta name="viewport" content="width=device-width,initial-scale=1">',
        '<meta name="referrer" content="no-referrer">',
        f"<title>{html.escape(_UNSEEN.sub(' ', title))}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>",
        f'<header><h1 dir="auto">{_text(title)}</h1>',
        f"<p>{' · '.join(_text(fact) for fact in facts if fact)}</p></header>",
        *_conversation(plan, session),
        "</main>\n</body>\n</html>\n",
    ]
    return "\n".join(lines)


def _conversation(plan: Plan, session: Session) -> Iterator[str]:
    for message in session.messages:
        yield from _message(plan, message)
    for agent in session.subagents:
        name = _text(f"sub-agent {agent.subagent_type or ''} {agent.agent_id or ''}".strip())
        yield f"<details><summary>{name}</summary><section>"
        yield from _conversation(plan, agent)
        yield "</section></details>"


def _message(plan: Plan, message: Message) -> Iterator[str]:
    """A message's blocks in their order; words and images that follow one another stand together."""
    words: list[str] = []
    for block in message.content:
        if isinstance(block, Text):
            words.append(f'<div class="words" dir="auto">{_text(block.text)}</div>')
        elif isinstance(block, Image):
            words.append(_image(plan, block))
        else:
            yield from _spoken(message, words)
            words = []
            yield from _fold(plan, block)
    yield from _spoken(message, words)


def _spoken(message: Message, words: list[str]) -> Iterator[str]:
    shown = "".join(words)
    if shown and (message.origin in DIALOGUE or message.origin is Origin.SUBAGENT):
        who = f"<b>{_text(message.name or _WHO[message.role])}</b>{_about(message)}"
        yield f'<article class="{message.role}"><p class="who">{who}</p>{shown}</article>'
    elif shown:
        yield f"<details><summary>{message.origin}{_about(message)}</summary>{shown}</details>"


def _about(message: Message) -> str:
    facts = [format_time(message.timestamp), message.model]
    return "".join(f" · {_text(fact)}" for fact in facts if fact)


def _fold(plan: Plan, block: Block) -> Iterator[str]:
    if isinstance(block, Thinking):
        if block.text.strip():
            yield f'<details><summary>thinking</summary><pre dir="auto">{_text(block.text)}</pre></details>'
        else:
            plan.counts["thinking"] += 1
    elif isinstance(block, ToolUse):
        head, _, rest = render_call(block).partition("\n")
        body = f'<pre dir="auto">{_text(rest)}</pre>' if rest else ""
        yield f"<details><summary>{_text(head)}</summary>{body}</details>"
    elif isinstance(block, ToolResult):
        mark = ' <span class="bad">error</span>' if block.is_error else ""
        first = _text(block.content.strip().partition("\n")[0][:100])
        images = "".join(_image(plan, image) for image in block.images)
        shown = f'<pre dir="auto">{_text(block.content)}</pre>{images}'
        yield f"<details><summary>→{mark} {first}</summary>{shown}</details>"


def _image(plan: Plan, image: Image) -> str:
    data = plan.image_data(image) if image.media_type in _SAFE_IMAGES else None
    if data is None:
        plan.counts["images"] += 1
        return f'<div class="words" dir="auto">{_text(image_note(image))}</div>'
    encoded = base64.b64encode(data).decode()
    note = html.escape(_UNSEEN.sub(" ", image_note(image)))
    return f'<img alt="{note}" src="data:{image.media_type};base64,{encoded}">'


def _text(text: str) -> str:
    """A text as HTML, with signs that cannot be seen shown by their number."""
    return _UNSEEN.sub(_sign, html.escape(text.replace("\r\n", "\n")))


def _sign(found: re.Match[str]) -> str:
    return f'<span class="sign">U+{ord(found.group()):04X}</span>'
