package ledgermq;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;

/**
 * Two members of a group consume in order; once told, the second leaves, which looks for a new leader as seldom as
 * clients do by default. Sends to the queues in turn meanwhile. Usage: Leave NAMESRV TOPIC; prints "LEFT".
 */
public final class Leave {
    private static final int POLL_MS = 30_000;
    private static final int PAUSE_MS = 50;
    private static volatile boolean sending = true;

    private Leave() { }

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = Talk.ready(new DefaultMQProducer("leave_producer"), args[0]);
        producer.start();
        Thread sender = new Thread(() -> send(producer, args[1]));
        sender.start();
        DefaultMQPushConsumer stays = member(args[0], args[1], "stays", 1_000);
        DefaultMQPushConsumer leaves = member(args[0], args[1], "leaves", POLL_MS);
        Talk.half();
        leaves.shutdown();
        Talk.say("LEFT");
        Talk.untilTold();
        sending = false;
        sender.join();
        stays.shutdown();
        producer.shutdown();
    }

    private static void send(DefaultMQProducer producer, String topic) {
        try {
            for (int i = 0; sending; i++) {
                int number = i;
                String body = "leave-" + i;
                Talk.send(body, () -> producer.send(Talk.message(topic, "k", body),
                    (queues, message, arg) -> queues.get(number % queues.size()), null));
                Thread.sleep(PAUSE_MS);
            }
        } catch (Exception e) {
            Talk.say("ERR " + e);
        }
    }

    private static DefaultMQPushConsumer member(String namesrv, String topic, String name, int pollMs)
        throws Exception {
        DefaultMQPushConsumer consumer = Talk.consumer(namesrv, "leave_group", name);
        consumer.setPollNameServerInterval(pollMs);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            messages.forEach(m -> Talk.got(name, m, "" + m.getQueueOffset()));
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        return consumer;
    }
}
