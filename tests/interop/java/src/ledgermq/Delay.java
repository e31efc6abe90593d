package ledgermq;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends delayed messages of levels 1 to 3 and consumes them. Usage: Delay NAMESRV TOPIC COUNT.
 *
 * The last word of a GOT line is the time in ms between the send and the delivery, less the delay.
 */
public final class Delay {
    private static final long[] DELAYS_MS = {0, 1_000, 5_000, 10_000};

    private Delay() { }

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = Talk.ready(new DefaultMQProducer("delay_producer"), args[0]);
        producer.start();
        Talk.send("delay-first", () -> producer.send(Talk.message(args[1], "0", "delay-first")));
        DefaultMQPushConsumer consumer = Talk.consumer(args[0], "delay_group", "c");
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt m : messages) {
                long waited = System.currentTimeMillis() - m.getBornTimestamp();
                Talk.got("c", m, "" + (waited - DELAYS_MS[Integer.parseInt(m.getKeys())]));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        int count = Integer.parseInt(args[2]);
        for (int i = 0; i < count; i++) {
            if (i == count / 2) {
                Talk.half();
            }
            int level = 1 + i % 3;
            Message message = Talk.message(args[1], "" + level, "delay-" + i);
            message.setDelayTimeLevel(level);
            Talk.send("delay-" + i, () -> producer.send(message));
        }
        Talk.untilTold();
        producer.shutdown();
        consumer.shutdown();
    }
}
