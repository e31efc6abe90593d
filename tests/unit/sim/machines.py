"""A small world for tests: machines, an echo server, a client that writes and listens."""

import asyncio

from sim.loop import SimLoop

PORT = 80


class Echo(asyncio.Protocol):
    """Answers what it hears, and notes what happens."""

    def __init__(self, log, answer=True):
        self.log = log
        self.answer = answer

    def connection_made(self, transport):
        self.transport = transport
        self.log.append("made")

    def data_received(self, data):
        self.log.append(data)
        if self.answer:
            self.transport.write(data)

    def eof_received(self):
        self.log.append("eof")

    def connection_lost(self, error):
        self.log.append(type(error).__name__ if error else "lost")


class Pair:
    """A server on ``b`` and a client on ``a``, connected."""

    def __init__(self, seed=1, keep_lines=False, answer=True):
        self.loop = SimLoop(seed, keep_lines=keep_lines)
        self.a = self.loop.add_host("a", "10.0.0.1")
        self.b = self.loop.add_host("b", "10.0.0.2")
        self.server_log, self.client_log = [], []
        self.server = self.loop.boot(self.b)
        self.client = self.loop.boot(self.a)
        self.transport = None
        self.loop.spawn(self.server, self.listen(answer))
        self.loop.run_for(1)
        self.loop.spawn(self.client, self.connect())
        self.loop.run_for(5)

    async def listen(self, answer=True):
        loop = asyncio.get_running_loop()
        self.listening = await loop.create_server(lambda: Echo(self.server_log, answer), None, PORT)

    async def connect(self):
        loop = asyncio.get_running_loop()
        make = lambda: Echo(self.client_log, answer=False)  # noqa: E731
        self.transport, _ = await loop.create_connection(make, "b", PORT)

    def write(self, data):
        self.loop.call(self.client, self.transport.write, data)

    def close(self):
        self.loop.close()
