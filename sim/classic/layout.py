"""Which machines a plan about master and slaves has, and the settings of the programs on them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sim.classic.plain_layout import PlainLayout

if TYPE_CHECKING:
    from sim.faults.classic import Classic
    from sim.faults.plan import Plan
    from sim.settings import SimBrokerConfig

NAME: Final = "BrokerPair"
"""What master and slaves are called."""


class ClassicLayout(PlainLayout):
    """Names of hosts by what runs on them; settings say who is master."""

    def __init__(self, plan: Plan) -> None:
        classic = plan.options.classic
        assert classic is not None
        super().__init__(plan, classic, NAME, classic.slave_flush)
        self.classic: Classic = classic

    def broker_config(self, name: str, *, is_master: bool) -> SimBrokerConfig:
        """Return the settings of a broker in a role."""
        role = "SLAVE"
        if is_master:
            role = "SYNC_MASTER" if self.classic.is_sync else "ASYNC_MASTER"
        return replace(
            self._config(name),
            broker_id=0 if is_master else 1 + self.brokers.index(name),
            broker_role=role,
            ha_behind_max=self.classic.behind_max,
        )
