"""What the tokens of a session cost, from a dated table of prices. Exact: decimal arithmetic, no rounding."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date as Day  # noqa: N812 - `date` is a field here
from decimal import Decimal, InvalidOperation
from functools import cache
from pathlib import Path
from typing import Any

from mempalace.analysis.parts import Cost, ModelUsage
from mempalace.errors import PriceError
from mempalace.model import Session, TokenUsage, Turn

BUNDLED = Path(__file__).with_name("prices.toml")
UNKNOWN_MODEL = "(unknown)"
_PER = 1_000_000
_KINDS = ("input", "output", "cache_write", "cache_read")
_HINT = "its form is that of the bundled table: see docs/sessions.md, Prices"

# What providers and clients put before and behind a model's name.
_PREFIX = re.compile(r".*/|(?:[a-z]{2,6}\.)?(?:anthropic|openai|google)\.")
_SUFFIX = re.compile(r"\[\w+\]$|-v\d+(?::\d+)?$|[-@]\d{4}-?\d{2}-?\d{2}$|-latest$|-preview(?:-\d{2}-\d{2,4})?$")


@dataclass(frozen=True, slots=True)
class Price:
    """Prices per million tokens of one family from a day on; None is not known."""

    since: Day
    input: Decimal | None
    output: Decimal | None
    cache_write: Decimal | None
    cache_read: Decimal | None

    def cost(self, usage: TokenUsage) -> Cost | None:
        """What the tokens cost; None if some are of a kind that has no price."""
        counts = (usage.input, usage.output, usage.cache_create or 0, usage.cache_read or 0)
        prices = (self.input, self.output, self.cache_write, self.cache_read)
        if any(count and price is None for count, price in zip(counts, prices, strict=True)):
            return None
        fresh, written, cached, read = (
            Decimal(count) * (price or 0) / _PER for count, price in zip(counts, prices, strict=True)
        )
        saved = Decimal(counts[3]) * self.input / _PER - read if self.input is not None and counts[3] else Decimal(0)
        return Cost(fresh, written, cached, read, saved)


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices by model. `date` is that of the newest price, `path` the file."""

    path: Path
    date: Day
    currency: str
    prices: Mapping[str, tuple[Price, ...]]

    def price(self, model: str, day: Day | None = None) -> Price | None:
        """The price of a model on a day (the newest without one); None for a model that the table does not name."""
        known = self.prices.get(plain_name(model), ())
        valid = [price for price in known if day is None or price.since <= day]
        return valid[-1] if valid else None


def plain_name(model: str) -> str:
    """A model's name without provider, date and variant, with dashes for dots.

    `anthropic/claude-haiku-4.5` and `claude-haiku-4-5-20251001` are both `claude-haiku-4-5`.
    """
    name = model.lower()
    match = _PREFIX.match(name)
    name = name[match.end() :] if match else name
    while match := _SUFFIX.search(name):
        name = name[: match.start()]
    return name.replace(".", "-")


@cache
def bundled_prices() -> PriceTable:
    """The table that comes with the package."""
    return load_prices(BUNDLED)


def load_prices(path: Path | str) -> PriceTable:
    """The prices in a TOML file of the form of `prices.toml`. Raises PriceError, which names file and family.

    With `extends = true` the bundled prices stand below it, for the models that it does not name.
    """
    import tomllib

    path = Path(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except OSError as error:
        raise PriceError(f"cannot be read: {error.strerror}", path=path) from error
    except (ValueError, RecursionError) as error:
        match = re.search(r"at line (\d+)", str(error))
        line = int(match[1]) if match else None
        raise PriceError(f"no table of prices: {error}", path=path, line=line, hint=_HINT) from error
    families = data.get("family")
    if not isinstance(families, list) or not families:
        raise PriceError("no table of prices: it has no [[family]]", path=path, hint=_HINT)
    prices: dict[str, list[Price]] = {}
    dates = []
    for number, family in enumerate(families, start=1):
        names, price, read = _family(family, number, path)
        dates.append(read)
        for name in dict.fromkeys(map(plain_name, names)):
            prices.setdefault(name, []).append(price)
    own = {name: tuple(sorted(known, key=lambda price: price.since)) for name, known in prices.items()}
    currency = str(data.get("currency", "USD"))
    if data.get("extends") is not True:
        return PriceTable(path, max(dates), currency, own)
    bundled = bundled_prices()
    if currency != bundled.currency:
        raise PriceError(f"extends the bundled prices, which are in {bundled.currency}, not {currency}", path=path)
    return PriceTable(path, max([*dates, bundled.date]), currency, {**bundled.prices, **own})


def _family(family: Any, number: int, path: Path) -> tuple[list[str], Price, Day]:
    def wrong(what: str) -> PriceError:
        return PriceError(f"family {number}: {what}", path=path, hint=_HINT)

    if not isinstance(family, dict):
        raise wrong("not a table")
    names = family.get("models")
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise wrong("`models` must be a list of names")
    unknown = sorted(set(family) - {"models", "since", "date", "source", *_KINDS})
    if unknown:
        raise wrong(f"unknown key {unknown[0]!r}")
    for key in ("date", "since"):
        if not isinstance(family.get(key, Day.min), Day) or (key == "date" and key not in family):
            raise wrong(f"`{key}` must be a day, as in {key} = 2026-11-05")
    if not isinstance(family.get("source"), str):
        raise wrong("`source` must say where the prices were read")
    amounts = [_amount(family.get(kind)) for kind in _KINDS]
    for kind, amount in zip(_KINDS, amounts, strict=True):
        if amount is None and kind in family:
            raise wrong(f"`{kind}` must be a price per million tokens, not {family[kind]!r}")
    return names, Price(family.get("since", Day.min), *amounts), family["date"]


def _amount(value: Any) -> Decimal | None:
    """A price, or None for what is none. Up to nine digits before and after the point, so that sums stay exact."""
    if not isinstance(value, int | Decimal) or isinstance(value, bool):
        return None
    try:
        amount = Decimal(value)
        return amount if 0 <= amount < 10**9 and amount == round(amount, 9) else None
    except InvalidOperation:
        return None


def model_usage(session: Session, table: PriceTable) -> dict[str, ModelUsage]:
    """Tokens and cost by model. A turn belongs to the model that its usage names, else to that of the session.

    A turn without any token is left out. Its price is that of the day of its first message.
    """
    models: dict[str, ModelUsage] = {}
    for turn in session.turns:
        usage = turn.token_usage
        if usage is None or not any((usage.input, usage.output, usage.cache_read, usage.cache_create)):
            continue
        model = usage.model or session.metadata.model or UNKNOWN_MODEL
        price = table.price(model, _day(turn, session))
        cost = None if price is None else price.cost(usage)
        one = ModelUsage(
            1,
            int(cost is None),
            usage.input,
            usage.output,
            usage.cache_read or 0,
            usage.cache_create or 0,
            cost or Cost(),
        )
        models[model] = models.get(model, ModelUsage()).plus(one)
    return models


def _day(turn: Turn, session: Session) -> Day | None:
    times = (message.timestamp for message in turn.messages if message.timestamp is not None)
    moment = next(times, session.metadata.timestamp)
    return None if moment is None else moment.date()
