package ledgermq;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Fails every message: the even ones once, the odd ones always, so that these become dead letters.
 *
 * Usage: Retry NAMESRV TOPIC COUNT. A GOT line names the original topic; one of "dead" is a dead letter.
 */
public final class Retry {
    private static final int RETRIES_MAX = 2;

    private Retry() { }

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = Talk.ready(new DefaultMQProducer("retry_producer"), args[0]);
        producer.start();
        Talk.send("retry-first", () -> producer.send(Talk.message(args[1], "0", "retry-first")));
        DefaultMQPushConsumer consumer = Talk.consumer(args[0], "retry_group", "c");
        consumer.setMaxReconsumeTimes(RETRIES_MAX);
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt m = messages.get(0);
            Talk.got("c", m, m.getTopic());
            boolean odd = Integer.parseInt(m.getKeys()) % 2 == 1;
            context.setDelayLevelWhenNextConsume(1);
            return odd || m.getReconsumeTimes() == 0
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQPushConsumer dead = Talk.consumer(args[0], "dead_group", "d");
        dead.subscribe("%DLQ%retry_group", "*");
        dead.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt m : messages) {
                Talk.got("dead", m, m.getProperty("RETRY_TOPIC"));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        dead.start();
        int count = Integer.parseInt(args[2]);
        for (int i = 0; i < count; i++) {
            if (i == count / 2) {
                Talk.half();
            }
            Message message = Talk.message(args[1], "" + i, "retry-" + i);
            Talk.send("retry-" + i, () -> producer.send(message));
        }
        Talk.untilTold();
        producer.shutdown();
        consumer.shutdown();
        dead.shutdown();
    }
}
