package ledgermq;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Pulls each queue of a topic by hand, and commits. Usage: Pull NAMESRV TOPIC COUNT.
 *
 * In the end "COMMITTED" has the sum of the offsets that the broker knows, and "END" that of the queues' ends.
 */
public final class Pull {
    private static volatile boolean pulling = true;

    private Pull() { }

    @SuppressWarnings("deprecation")
    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = Talk.ready(new DefaultMQProducer("pull_producer"), args[0]);
        producer.start();
        Talk.send("pull-first", () -> producer.send(Talk.message(args[1], "k", "pull-first")));
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("pull_group");
        consumer.setNamesrvAddr(args[0]);
        consumer.setPollNameServerInterval(1_000);
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.setPersistConsumerOffsetInterval(1_000);
        consumer.start();
        Set<MessageQueue> queues = consumer.fetchSubscribeMessageQueues(args[1]);
        Map<MessageQueue, Long> offsets = new HashMap<>();
        for (MessageQueue queue : queues) {
            offsets.put(queue, consumer.minOffset(queue));
        }
        Thread puller = new Thread(() -> pull(consumer, offsets));
        puller.start();
        int count = Integer.parseInt(args[2]);
        for (int i = 0; i < count; i++) {
            if (i == count / 2) {
                Talk.half();
            }
            String body = "pull-" + i;
            Talk.send(body, () -> producer.send(Talk.message(args[1], "k", body)));
        }
        Talk.untilTold();
        pulling = false;
        puller.join();
        producer.shutdown();
        tell(consumer, offsets);
        consumer.shutdown();
    }

    @SuppressWarnings("deprecation")
    private static void pull(DefaultMQPullConsumer consumer, Map<MessageQueue, Long> offsets) {
        while (pulling) {
            for (MessageQueue queue : offsets.keySet()) {
                try {
                    PullResult result = consumer.pull(queue, "*", offsets.get(queue), 32);
                    if (result.getPullStatus() == PullStatus.FOUND) {
                        for (MessageExt m : result.getMsgFoundList()) {
                            Talk.got("c", m, "" + m.getQueueOffset());
                        }
                    } else if (result.getPullStatus() == PullStatus.OFFSET_ILLEGAL) {
                        Talk.say("ILLEGAL " + offsets.get(queue) + " " + result);
                    }
                    offsets.put(queue, result.getNextBeginOffset());
                    consumer.updateConsumeOffset(queue, result.getNextBeginOffset());
                } catch (Exception e) {
                    Talk.say("AGAIN " + e);
                    pause();
                }
            }
            pause();
        }
    }

    private static void pause() {
        try {
            Thread.sleep(100);
        } catch (InterruptedException e) {
            pulling = false;
        }
    }

    /**
     * Commit, and ask the broker, not this client's memory.
     *
     * The client's first rebalance forgets the offsets that it held in memory, and may come after the last pull.
     */
    @SuppressWarnings("deprecation")
    private static void tell(DefaultMQPullConsumer consumer, Map<MessageQueue, Long> offsets) throws Exception {
        long end = 0;
        long committed = 0;
        for (MessageQueue queue : offsets.keySet()) {
            consumer.updateConsumeOffset(queue, offsets.get(queue));
            consumer.getOffsetStore().persist(queue);
        }
        for (int attempt = 0; attempt < 100 && (committed < end || end == 0); attempt++, Thread.sleep(100)) {
            end = 0;
            committed = 0;
            for (MessageQueue queue : offsets.keySet()) {
                end += consumer.maxOffset(queue);
                committed += consumer.fetchConsumeOffset(queue, true);
            }
        }
        Talk.say("COMMITTED " + committed);
        Talk.say("END " + end);
    }
}
