"""Run by a Python that has PyPI's ``rocketmq``: the published C++ client sends, and consumes.

Arguments: name server, topic, group, how many. Prints ``ACK`` and ``GOT`` with each body; waits for
a line on its input after the first half, and after the second.
"""

import sys
import time

from rocketmq.client import Message, Producer, PushConsumer, _CConsumeStatus

SECONDS = 60


def say(*words: str) -> None:
    """Write a line for the test."""
    sys.stdout.write(" ".join(words) + "\n")
    sys.stdout.flush()


def send(producer: Producer, topic: str, body: str) -> None:
    """Send until it is acknowledged."""
    message = Message(topic)
    message.set_tags("A")
    message.set_body(body)
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            producer.send_sync(message)
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            say("ACK", body)
            return


def main() -> None:
    """Send, consume, and end when told to."""
    namesrv, topic, group, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
    producer = Producer(f"P_{group}")
    producer.set_namesrv_addr(namesrv)
    producer.start()
    send(producer, topic, "first")
    consumer = PushConsumer(group)
    consumer.set_namesrv_addr(namesrv)

    def take(message: object) -> object:
        body = message.body
        text = body.decode() if isinstance(body, bytes) else body
        say("GOT", text)
        return _CConsumeStatus.CONSUME_SUCCESS

    consumer.subscribe(topic, take)
    consumer.start()
    bodies = [f"body-{number}" for number in range(count)]
    for body in bodies[: count // 2]:
        send(producer, topic, body)
    say("HALF")
    sys.stdin.readline()
    for body in bodies[count // 2 :]:
        send(producer, topic, body)
    sys.stdin.readline()
    consumer.shutdown()
    producer.shutdown()
    say("END")


if __name__ == "__main__":
    main()
