"""Read every queue of a topic from its beginning to its end, without joining in rebalancing.

Run: python examples/pull.py 127.0.0.1:9876 orders
"""

import asyncio
import sys

from ledgermq import ClientConfig, MessageQueue, PullConsumer, PullStatus


async def read(consumer: PullConsumer, queue: MessageQueue) -> int:
    """Print the messages of one queue; returns how many there were."""
    offset, count = await consumer.min_offset(queue), 0
    end = await consumer.max_offset(queue)
    while offset < end:
        result = await consumer.pull(queue, offset=offset)
        for message in result.messages:
            text = message.body.decode(errors="replace")
            sys.stdout.write(f"{queue.queue_id} offset {message.queue_offset}: {text}\n")
        count += len(result.messages)
        if result.status is PullStatus.NO_NEW_MESSAGE:
            break
        offset = result.next_offset
    return count


async def main(namesrv: str, topic: str) -> None:
    """Read all queues one after the other."""
    config = ClientConfig(namesrv_addrs=tuple(namesrv.split(";")), group="example-readers")
    async with PullConsumer(config) as consumer:
        total = 0
        for queue in await consumer.fetch_subscribe_queues(topic):
            total += await read(consumer, queue)
        sys.stdout.write(f"{total} messages\n")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} NAMESRV[;NAMESRV] TOPIC")
    asyncio.run(main(sys.argv[1], sys.argv[2]))
