"""Reports as people read them: tables with small bars, in the width of the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

from mempalace.analysis import PriceTable, SessionAnalysis
from mempalace.analysis.groups import Group
from mempalace.analysis.parts import Cost
from mempalace.cli.bars import bar, cut, shorten
from mempalace.cli.output import columns, number, one_line, style, table, width

_MOST = 10
_ID = 13  # of a UUID enough to name it
_BAR = 12


def report(total: SessionAnalysis, prices: PriceTable) -> str:
    """All that `stats` shows of a report."""
    parts = [_head(total), _tools(total), _tokens(total), _costs(total, prices), errors(total), _files(total)]
    return "\n\n".join([*filter(None, parts), _rest(total)])


def _head(total: SessionAnalysis) -> str:
    kinds = ", ".join(f"{name} {number(count)}" for name, count in total.formats.items())
    counts = ", ".join(f"{name} {number(count)}" for name, count in total.message_counts.items())
    lines = [
        f"{plural(total.sessions, 'session')} ({kinds})",
        f"{plural(total.total_turns, 'turn')}, {plural(sum(total.message_counts.values()), 'message')}: {counts}",
    ]
    if total.subagents:
        lines.append(f"with {plural(total.subagents, 'sub-agent')}")
    if total.subagents_left_out:
        lines.append(f"without {plural(total.subagents_left_out, 'attached sub-agent')}: --subagents counts them")
    lines[0] = style(lines[0], bold=True)
    return "\n".join(lines)


def _tools(total: SessionAnalysis) -> str:
    if not total.tool_stats:
        return ""
    greatest = max(one.calls for one in total.tool_stats.values())
    rows = [("tool", "calls", "", "errors", "success", "output")]
    for name, one in _first(total.tool_stats.items()):
        rate = f"{one.success_rate:.0%}" if one.success_rate is not None else ""
        rows.append(
            (
                name,
                number(one.calls),
                bar(one.calls, greatest, _BAR),
                number(one.errors) if one.errors else "",
                rate,
                f"{number(one.output_chars)} chars",
            )
        )
    body = _titled(table(_fitted(rows, 0, shorten), right=(1, 3, 4, 5)))
    if len(total.tool_stats) > _MOST:
        rate = f"{total.success_rate:.0%}" if total.success_rate is not None else ""
        more = plural(len(total.tool_stats) - _MOST, "more tool")
        body += f"\n... and {more}; {number(total.total_tool_calls)} calls of all, {rate} without an error: --json"
    return body


def _tokens(total: SessionAnalysis) -> str:
    stats, dedup = total.token_stats, total.dedup_tokens
    if not stats.api_calls:
        return "No tokens: these logs do not tell them."
    amounts = [
        ("input", stats.total_input),
        ("output", stats.total_output),
        ("cache read", stats.cache_read),
        ("cache written", stats.cache_create),
    ]
    greatest = max(amount or 0 for _, amount in amounts)
    rows = [("tokens", "", "")]
    rows += [
        (name, "not said" if amount is None else number(amount), bar(amount or 0, greatest, _BAR))
        for name, amount in amounts
    ]
    lines = [_titled(table(rows, right=(1,)))]
    if stats.min_context is not None and stats.max_context is not None and stats.avg_context is not None:
        spread = f"{number(stats.min_context)} to {number(stats.max_context)}, on average {number(stats.avg_context)}"
        lines.append(f"context of a turn: {spread}")
    if stats.context_per_request is not None:
        lines.append(f"context of a request: on average {number(stats.context_per_request)}")
    if dedup.uniqueness_ratio is not None:
        lines.append(f"new, of all that was sent and received: {dedup.uniqueness_ratio:.0%}")
    return "\n".join(lines)


def _costs(total: SessionAnalysis, prices: PriceTable) -> str:
    if not total.models:
        return ""
    known = [usage.cost.total for usage in total.models.values() if usage.cost is not None]
    greatest = max(known, default=Decimal(0))
    rows = [("model", "turns", "cost", "")]
    for name, usage in total.models.items():
        cost = usage.cost
        shown = "no price" if cost is None else money(cost.total, prices.currency)
        rows.append(
            (
                name,
                number(usage.turns),
                shown,
                bar(float(cost.total if cost else 0), float(greatest), _BAR),
            )
        )
    lines = [_titled(table(_fitted(rows, 0, shorten), right=(1, 2)))]
    if total.cost is not None:
        lines.append(_total(total.cost, total.unpriced, prices))
    return "\n".join(lines)


def _total(cost: Cost, unpriced: dict[str, int], prices: PriceTable) -> str:
    missing = f", without {plural(sum(unpriced.values()), 'turn')} that have no price" if unpriced else ""
    amount = money(cost.total, prices.currency)
    text = f"total {amount} at list prices read up to {prices.date}{missing}"
    if cost.cache_savings:
        text += f"\nreading from the cache saved {money(cost.cache_savings, prices.currency)}"
    return text


def errors(total: SessionAnalysis) -> str:
    """Errors by category, each with its first example."""
    if not total.error_patterns:
        return ""
    greatest = max(one.count for one in total.error_patterns)
    rows = [("errors", "", "", "for example")]
    for one in total.error_patterns:
        rows.append((one.category, number(one.count), bar(one.count, greatest, _BAR), one.examples[0].text))
    return _titled(table(_fitted(rows, 3, cut), right=(1,)))


def _files(total: SessionAnalysis) -> str:
    if not total.file_tokens:
        return ""
    greatest = max(total.file_tokens.values())
    rows = [("files", "~tokens", "")]
    rows += [(name, number(count), bar(count, greatest, _BAR)) for name, count in _first(total.file_tokens.items())]
    body = _titled(table(_fitted(rows, 0, shorten), right=(1,)))
    more = len(total.file_tokens) - _MOST
    return body + (f"\n... and {plural(more, 'more file')}: --json" if more > 0 else "")


def _rest(total: SessionAnalysis) -> str:
    lines = [
        f"turns with a single tool call: {number(total.parallel_opportunities)}",
        f"calls that could have gone with the one before: {number(total.parallel_opportunities_strict)}",
        f"corrections by the assistant: {number(len(total.corrections))}",
    ]
    if total.retry_hotspots:
        lines.append(f"commands that failed and were retried: {number(len(total.retry_hotspots))} (sessions patterns)")
    if total.largest_tool_results:
        largest = total.largest_tool_results[0]
        where = f"{shorten(largest.tool, 20)} in {one_line(largest.session.rpartition('/')[2])[:_ID]}"
        lines.append(f"largest tool result: {number(largest.chars)} chars of {where}")
    return "\n".join(lines)


def groups(by: str, found: Sequence[Group], prices: PriceTable) -> str:
    """A row per group, with a bar for its tokens."""
    greatest = max((group.tokens for group in found), default=0)
    calls = by != "model"
    rows: list[tuple[str, ...]] = [
        (by, "sessions", "turns", *(("calls", "errors") if calls else ()), "tokens", "cost", "")
    ]
    for group in found:
        counts = (number(group.calls or 0), number(group.errors or 0)) if calls else ()
        cost = "no price" if group.cost is None else money(group.cost.total, prices.currency)
        cost = "" if group.cost is None and not group.tokens else cost
        rows.append(
            (
                group.name,
                number(group.sessions),
                number(group.turns),
                *counts,
                number(group.tokens),
                cost + "+" * bool(group.unpriced_turns and group.cost),
                bar(group.tokens, greatest, _BAR if width() >= 100 else _BAR // 2),
            )
        )
    last = len(rows[0]) - 1
    fitted = _fitted(rows, 0, shorten)
    lines = [_titled(table(fitted, right=tuple(range(1, last))))]
    if any(group.unpriced_turns and group.cost for group in found):
        lines.append("+ and turns that have no price")
    return "\n".join(lines)


def values(found: Iterable[tuple[str, Any]]) -> str:
    """A row per session with what a script gave for it."""
    known = list(found)
    if not known:
        return "No sessions."
    return value(dict(known)) if len(dict(known)) == len(known) else value([list(pair) for pair in known])


def value(found: Any) -> str:
    """JSON data as a table, where it is a mapping of simple values; numbers get bars."""
    if isinstance(found, dict) and found:
        numbers = [one for one in found.values() if isinstance(one, int | float) and not isinstance(one, bool)]
        greatest = max(numbers) if len(numbers) == len(found) else 0
        rows = [(str(name), _cell(one), bar(one, greatest, _BAR) if greatest else "") for name, one in found.items()]
        return table(rows, right=(1,) if greatest else ())
    if isinstance(found, list) and found:
        return "\n".join(_cell(one) for one in found)
    return _cell(found)


def _cell(one: Any) -> str:
    if isinstance(one, str):
        return one
    if isinstance(one, int) and not isinstance(one, bool):
        return number(one)
    return json.dumps(one, ensure_ascii=False)


def money(amount: Decimal, currency: str) -> str:
    """An amount to the cent; a smaller one to its first two digits."""
    sign = "$" if currency == "USD" else f"{currency} "
    if amount and abs(amount) < Decimal("0.01"):
        return f"{sign}{float(amount):.2g}" if abs(amount) >= Decimal("0.0001") else f"<{sign}0.0001"
    return f"{sign}{amount:,.2f}"


def plural(count: int, word: str) -> str:
    """`1 turn`, `2 turns`."""
    return f"{number(count)} {word}{'s' * (count != 1)}"


def _first(items: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    return list(items)[:_MOST]


def _fitted(rows: Sequence[tuple[str, ...]], column: int, fit: Callable[[str, int], str]) -> list[tuple[str, ...]]:
    """The rows with one column shortened to the room that the others leave."""
    others = [row[:column] + row[column + 1 :] for row in rows]
    used = sum(max(columns(one_line(cell)) for cell in cells) + 2 for cells in zip(*others, strict=True))
    room = max(16, width() - used)
    return [(*row[:column], fit(row[column], room), *row[column + 1 :]) for row in rows]


def _titled(text: str) -> str:
    head, _, body = text.partition("\n")
    return f"{style(head, bold=True)}\n{body}"
