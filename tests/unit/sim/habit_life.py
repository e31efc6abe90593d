"""A life for habits of simulated clients that only judge: it notes what is reported."""

from types import SimpleNamespace


class Life:
    """One that notes what is reported."""

    name = "f0-1"

    def __init__(self):
        self.found = []
        self.now = self.dropped = 0
        self.machine = SimpleNamespace(address="10.0.0.1")

    def now_ms(self):
        return self.now

    def count(self, what, times=1):
        del what, times

    def report(self, oracle, text):
        self.found.append((oracle, text))

    def is_dropped(self, _queue, offset):
        return offset < self.dropped

    @property
    def oracles(self):
        return [oracle for oracle, _ in self.found]


def judge(kind, **state):
    """Return an object that judges, without the clients that it has otherwise."""
    made, life = object.__new__(kind), Life()
    made._life = life
    vars(made).update(state)
    return made, life
