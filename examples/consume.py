"""Consume a topic as a member of a group, until interrupted.

Start it twice to see the queues being shared.
Run: python examples/consume.py 127.0.0.1:9876 orders [SECONDS]
"""

import asyncio
import contextlib
import sys

from ledgermq import (
    ClientConfig,
    ConsumeContext,
    ConsumeFrom,
    ConsumeOptions,
    ConsumeStatus,
    MessageExt,
    PushConsumer,
)


async def listen(messages: list[MessageExt], context: ConsumeContext) -> ConsumeStatus:
    """Print each message; raising or RECONSUME_LATER would bring it again later."""
    for message in messages:
        queue = f"{context.queue.broker_name}/{context.queue.queue_id}"
        again = f", delivery {message.reconsume_times + 1}" if message.reconsume_times else ""
        text = message.body.decode(errors="replace")
        sys.stdout.write(f"{queue} offset {message.queue_offset}: {text}{again}\n")
        sys.stdout.flush()
    return ConsumeStatus.CONSUME_SUCCESS


async def main(namesrv: str, topic: str, seconds: float) -> None:
    """Consume for ``seconds``, then leave the group."""
    config = ClientConfig(namesrv_addrs=tuple(namesrv.split(";")), group="example-consumers")
    options = ConsumeOptions(consume_from=ConsumeFrom.FIRST_OFFSET)
    consumer = PushConsumer(config, listen, options)
    consumer.subscribe(topic)
    async with consumer:
        await asyncio.sleep(seconds)


if __name__ == "__main__":
    if len(sys.argv) not in {3, 4}:
        sys.exit(f"usage: {sys.argv[0]} NAMESRV[;NAMESRV] TOPIC [SECONDS]")
    limit = float(sys.argv[3]) if len(sys.argv) == 4 else 86_400.0
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1], sys.argv[2], limit))
