"""A session -> its report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from mempalace.analysis import chains, corrections, failures, files, parallel, retries, tokens, tools
from mempalace.analysis.calls import pair
from mempalace.analysis.cost import PriceTable, bundled_prices, model_usage
from mempalace.analysis.parts import add_counts
from mempalace.analysis.report import SessionAnalysis, aggregate
from mempalace.model import Session


def analyze(session: Session, *, subagents: bool = False, prices: PriceTable | None = None) -> SessionAnalysis:
    """The statistics of a session; with `subagents`, of it and all that are attached to it, added up.

    `prices` takes the place of the bundled table. A model without a price costs None, never 0.
    """
    table = prices or bundled_prices()
    attached = list(_attached(session))
    if subagents:
        return aggregate([_analyze(session, table, 0), *(_analyze(one, table, 0) for one in attached)])
    return _analyze(session, table, len(attached))


def _attached(session: Session) -> Iterator[Session]:
    for agent in session.subagents:
        yield agent
        yield from _attached(agent)


def _analyze(session: Session, table: PriceTable, left_out: int) -> SessionAnalysis:
    name = session.key or str(session.path)
    paired = pair(session)
    one = SessionAnalysis(
        ids=(name,),
        subagents=int(session.is_subagent),
        subagents_left_out=left_out,
        formats={session.format: 1},
        message_counts=add_counts([Counter(str(message.role) for message in session.messages)]),
        tool_stats=tools.tool_stats(paired),
        unpaired_results=sum(call is None for _, call in paired.answers),
        token_stats=tokens.token_stats(session),
        models=model_usage(session, table),
        error_patterns=failures.error_patterns(paired, name),
        file_tokens=files.file_tokens(paired),
        parallel_opportunities=parallel.parallel_opportunities(paired),
        parallel_opportunities_strict=parallel.parallel_opportunities_strict(paired),
        total_turns=len(session.turns),
        context_per_turn=tokens.context_per_turn(session, name),
        tool_chains=chains.tool_chains(paired, len(session.turns), name),
        transitions=tools.transitions(paired),
        retry_hotspots=retries.retry_hotspots(paired),
        corrections=corrections.corrections(session, name),
        largest_tool_results=tools.largest_tool_results(paired, name),
        dedup_tokens=tokens.dedup_tokens(session),
    )
    return aggregate([one])  # in the order of sums, so that aggregate([report]) == report
