"""How the lines of a log become events again."""

from __future__ import annotations

from dataclasses import dataclass

from photon.adapters.contract import Adapter
from photon.dispatcher.retry import Patience
from photon.idregistry.api import Digester


@dataclass(frozen=True, slots=True)
class LineRules:
    """The dispatcher's own."""

    adapter: Adapter
    digester: Digester
    patience: Patience
