"""Clicks on ads, joined to the search that showed them: amount, payer and currency."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import BadRecord, Filtered, Joined, LogFile

_SIDES: Mapping[str, Any] = {
    "primary": {"format": "jsonl", "key": "query_id"},
    "foreign": {"format": "jsonl", "key": "query_id", "id": "click_id", "time": {"field": "time_us", "unit": "us"}},
}


class Ad(msgspec.Struct, frozen=True):
    """One slot of a result page."""

    slot: int
    campaign: str
    advertiser: str
    currency: str
    price_micros: int


class Query(msgspec.Struct, frozen=True):
    """A search with the ads it showed; its other fields are not billed."""

    query_id: str
    time_us: int
    country: str
    agent: str
    ads: tuple[Ad, ...]


class Click(msgspec.Struct, frozen=True):
    """A click on a slot."""

    click_id: str
    slot: int
    time_us: int


class Billed(msgspec.Struct, frozen=True):
    """The foreign payload of a joined record."""

    click_id: str
    advertiser: str
    campaign: str
    currency: str
    charged_micros: int
    seconds_after_query: float


class Shown(msgspec.Struct, frozen=True):
    """The primary payload of a joined record: no user, no address."""

    query_id: str
    country: str
    ads_shown: int


_query = msgspec.json.Decoder(Query).decode
_click = msgspec.json.Decoder(Click).decode
_encode = msgspec.json.Encoder().encode


class Billing(ConfiguredAdapter):
    """Bills clicks at the price of the slot. Filters clicks by bots, clicks in tests, and late clicks."""

    api_version = 1

    class Options(msgspec.Struct):
        latest_s: int = 1800
        not_billed: tuple[str, ...] = ("cmp-test",)
        bots: tuple[str, ...] = ("bot", "crawler")

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__({**_SIDES, **options})
        self._latest_us = self.options["latest_s"] * 1_000_000
        self._not_billed = frozenset(self.options["not_billed"])
        self._bots = tuple(each.lower() for each in self.options["bots"])

    def join(self, foreign: bytes, foreign_file: LogFile, primary: bytes, primary_file: LogFile) -> Joined | Filtered:
        """Raises BadRecord if a click names a slot that was not shown: this needs review."""
        try:
            click, query = _click(foreign), _query(primary)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadRecord(f"is not a click on a query: {error}") from None
        agent = query.agent.lower()
        if any(bot in agent for bot in self._bots):
            return Filtered("the search came from a bot")
        after_us = click.time_us - query.time_us
        if not 0 <= after_us <= self._latest_us:
            return Filtered("the click is too long after the search, or before it")
        ad = next((each for each in query.ads if each.slot == click.slot), None)
        if ad is None:
            raise BadRecord(f"slot {click.slot} was not shown")
        if ad.campaign in self._not_billed:
            return Filtered("the campaign is not billed")
        billed = Billed(
            click.click_id, ad.advertiser, ad.campaign, ad.currency, ad.price_micros, after_us // 1000 / 1000
        )
        return Joined(_encode(billed), _encode(Shown(query.query_id, query.country, len(query.ads))))
