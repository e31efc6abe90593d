package ledgermq;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends in order by eight keys; two members consume in order, and fail now and then.
 *
 * Usage: Orderly NAMESRV TOPIC COUNT. Bodies are "KEY:NUMBER", rising a key.
 */
public final class Orderly {
    private static final int KEYS = 8;

    private Orderly() { }

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = Talk.ready(new DefaultMQProducer("orderly_producer"), args[0]);
        producer.start();
        send(producer, args[1], 0, "first");
        DefaultMQPushConsumer a = member(args[0], args[1], "a");
        DefaultMQPushConsumer b = member(args[0], args[1], "b");
        int count = Integer.parseInt(args[2]);
        for (int i = 0; i < count; i++) {
            if (i == count / 2) {
                Talk.half();
            }
            send(producer, args[1], i % KEYS, (i % KEYS) + ":" + i);
        }
        Talk.untilTold();
        producer.shutdown();
        a.shutdown();
        b.shutdown();
    }

    private static void send(DefaultMQProducer producer, String topic, int key, String body) throws Exception {
        Talk.send(body, () -> producer.send(Talk.message(topic, "" + key, body),
            (queues, message, arg) -> queues.get((Integer) arg % queues.size()), key));
    }

    private static DefaultMQPushConsumer member(String namesrv, String topic, String name) throws Exception {
        DefaultMQPushConsumer consumer = Talk.consumer(namesrv, "orderly_group", name);
        consumer.setSuspendCurrentQueueTimeMillis(50);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            MessageExt m = messages.get(0);
            boolean again = Talk.body(m).hashCode() % 10 == 0 && m.getReconsumeTimes() == 0;
            if (again) {
                return ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
            }
            Talk.got(name, m, "" + m.getQueueOffset());
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        return consumer;
    }
}
