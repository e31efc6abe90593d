package ledgermq;

import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/** Polls a topic with the lite pull consumer. Usage: LitePull NAMESRV TOPIC COUNT. */
public final class LitePull {
    private static volatile boolean polling = true;

    private LitePull() { }

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = Talk.ready(new DefaultMQProducer("lite_producer"), args[0]);
        producer.start();
        Talk.send("lite-first", () -> producer.send(Talk.message(args[1], "k", "lite-first")));
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("lite_group");
        consumer.setNamesrvAddr(args[0]);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPollNameServerInterval(1_000);
        consumer.setHeartbeatBrokerInterval(1_000);
        consumer.setAutoCommitIntervalMillis(1_000);
        consumer.subscribe(args[1], "*");
        consumer.start();
        Thread poller = new Thread(() -> {
            while (polling) {
                for (MessageExt m : consumer.poll(200)) {
                    Talk.got("c", m, "" + m.getQueueOffset());
                }
            }
        });
        poller.start();
        int count = Integer.parseInt(args[2]);
        for (int i = 0; i < count; i++) {
            if (i == count / 2) {
                Talk.half();
            }
            String body = "lite-" + i;
            Talk.send(body, () -> producer.send(Talk.message(args[1], "k", body)));
        }
        Talk.untilTold();
        polling = false;
        poller.join();
        producer.shutdown();
        consumer.shutdown();
    }
}
