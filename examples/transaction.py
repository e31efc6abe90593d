"""Write orders into a database and send a message for each: both happen, or neither.

Run: python examples/transaction.py 127.0.0.1:9876 orders 5 orders.db
"""

import asyncio
import sqlite3
import sys
import time

from ledgermq import (
    ClientConfig,
    HalfMessage,
    Message,
    MessageExt,
    TransactionProducer,
    TransactionState,
)

YOUNG_S = 60
"""Of a younger half the local transaction may still run: nobody knows how it ends."""


class Orders:
    """The local transactions: a row for each order. Plain functions run in threads."""

    def __init__(self, path: str) -> None:
        self._path = path
        with self._open() as database:
            database.execute("create table if not exists orders (id text primary key, what text)")

    def execute(self, message: HalfMessage, arg: int) -> TransactionState:
        """Store the order, unless it is one that nobody wants."""
        if arg % 3 == 2:
            return TransactionState.ROLLBACK
        with self._open() as database:  # commits at the end of the block
            row = (message.transaction_id, message.body.decode())
            database.execute("insert into orders values (?, ?)", row)
        return TransactionState.COMMIT

    def check(self, message: MessageExt) -> TransactionState:
        """Say whether the order was stored; asked if the broker did not hear how it ended."""
        with self._open() as database:
            found = database.execute("select 1 from orders where id = ?", (message.message_id(),))
            if found.fetchone():
                return TransactionState.COMMIT
        age_s = time.time() - message.born_timestamp / 1000  # noqa: TID251 - a user's program
        return TransactionState.UNKNOWN if age_s < YOUNG_S else TransactionState.ROLLBACK

    def _open(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path)


async def main(namesrv: str, topic: str, count: int, path: str) -> None:
    """Make ``count`` orders; every third is rolled back."""
    config = ClientConfig(namesrv_addrs=tuple(namesrv.split(";")), group="example-orders")
    async with TransactionProducer(config, Orders(path)) as producer:
        for number in range(count):
            message = Message(topic, f"order {number}".encode(), keys=str(number))
            result = await producer.send_in_transaction(message, number)
            sys.stdout.write(f"order {number}: {result.state.name} {result.msg_id}\n")


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(f"usage: {sys.argv[0]} NAMESRV[;NAMESRV] TOPIC COUNT DATABASE")
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
