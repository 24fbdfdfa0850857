"""Statistics over sessions: a consumer of the model, of which no parser knows.

    report = analyze(session)           what one session holds
    total = aggregate([report, ...])    the sum of several; in any order, in any grouping

One module per metric, each a function from a session (or its paired calls) to a part of the report:
calls (which result answers which call), tools, tokens, cost, failures, files, parallel, chains, retries, corrections.
docs/sessions.md defines every figure.
"""

from __future__ import annotations

from mempalace.analysis.analyze import analyze
from mempalace.analysis.cost import PriceTable, load_prices
from mempalace.analysis.report import SessionAnalysis, aggregate

__all__ = ["PriceTable", "SessionAnalysis", "aggregate", "analyze", "load_prices"]
