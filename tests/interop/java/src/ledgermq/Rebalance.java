package ledgermq;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Three members of one group, one after the other; prints who holds which queues twice a second.
 *
 * Usage: Rebalance NAMESRV TOPIC COUNT. Lines: "OWN NUMBER name=q,q name=q,q ...", one member less after HALF.
 */
public final class Rebalance {
    private static volatile boolean looking = true;

    private Rebalance() { }

    public static void main(String[] args) throws Exception {
        DefaultMQProducer producer = Talk.ready(new DefaultMQProducer("rebalance_producer"), args[0]);
        producer.start();
        Talk.send("rebalance-first", () -> producer.send(Talk.message(args[1], "k", "rebalance-first")));
        List<DefaultMQPushConsumer> members = new ArrayList<>();
        for (String name : new String[] {"a", "b", "c"}) {
            DefaultMQPushConsumer consumer = Talk.consumer(args[0], "rebalance_group", name);
            consumer.subscribe(args[1], "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                for (MessageExt m : messages) {
                    Talk.got(name, m, "" + m.getQueueOffset());
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            synchronized (members) {
                members.add(consumer);
            }
        }
        Thread looker = new Thread(() -> look(members));
        looker.start();
        int count = Integer.parseInt(args[2]);
        for (int i = 0; i < count; i++) {
            if (i == count / 2) {
                Talk.until(() -> shared(members), 60_000);
                Talk.half();
                DefaultMQPushConsumer leaver;
                synchronized (members) {
                    leaver = members.remove(1);
                }
                leaver.shutdown();
            }
            String body = "rebalance-" + i;
            Talk.send(body, () -> producer.send(Talk.message(args[1], "k", body)));
        }
        Talk.untilTold();
        looking = false;
        looker.join();
        producer.shutdown();
        for (DefaultMQPushConsumer consumer : members) {
            consumer.shutdown();
        }
    }

    /** Say whether each queue has one owner. */
    private static boolean shared(List<DefaultMQPushConsumer> members) {
        List<Integer> all = new ArrayList<>();
        synchronized (members) {
            members.forEach(member -> all.addAll(owned(member)));
        }
        return all.size() == 4 && new TreeSet<>(all).size() == 4;
    }

    private static Set<Integer> owned(DefaultMQPushConsumer consumer) {
        Set<Integer> owned = new TreeSet<>();
        for (MessageQueue queue : consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl()
            .getProcessQueueTable().keySet()) {
            if (!queue.getTopic().startsWith("%RETRY%")) {
                owned.add(queue.getQueueId());
            }
        }
        return owned;
    }

    private static void look(List<DefaultMQPushConsumer> members) {
        while (looking) {
            StringBuilder line = new StringBuilder("OWN ");
            synchronized (members) {
                line.append(members.size());
                for (DefaultMQPushConsumer consumer : members) {
                    line.append(' ').append(consumer.getInstanceName()).append('=')
                        .append(owned(consumer).toString().replace(" ", ""));
                }
            }
            Talk.say(line.toString());
            try {
                Thread.sleep(500);
            } catch (InterruptedException e) {
                return;
            }
        }
    }
}
