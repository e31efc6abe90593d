package ledgermq;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * What applications ask of the admin client: before the leader is killed, of TOPIC_before, and behind it, of TOPIC_after.
 *
 * Usage: Manage NAMESRV TOPIC COUNT. Each question prints "CASE before|after name answer", once it is the answer that
 * the last word wants or a minute is over.
 */
public final class Manage {
    private static final String GROUP = "manage_group";
    private static final int QUEUES = 4;
    private static final int PATIENCE_MS = 60_000;
    private static final Map<String, Integer> TIMES = new ConcurrentHashMap<>();
    private static DefaultMQAdminExt admin;
    private static DefaultMQProducer producer;
    private static String topic;
    private static int count;

    private Manage() { }

    public static void main(String[] args) throws Exception {
        topic = args[1];
        count = Integer.parseInt(args[2]);
        admin = new DefaultMQAdminExt(5_000);
        admin.setNamesrvAddr(args[0]);
        admin.setInstanceName("manage");
        admin.setPollNameServerInterval(1_000);
        admin.setHeartbeatBrokerInterval(1_000);
        admin.start();
        producer = Talk.ready(new DefaultMQProducer("manage_producer"), args[0]);
        producer.start();
        DefaultMQPushConsumer consumer = member(args[0], "first");
        phase("before", consumer);
        Talk.half();
        phase("after", consumer);
        consumer.shutdown();
        idle("after", args[0]);
        Talk.untilTold();
        admin.shutdown();
        producer.shutdown();
    }

    private static DefaultMQPushConsumer member(String namesrv, String name) throws Exception {
        DefaultMQPushConsumer consumer = Talk.consumer(namesrv, GROUP, name);
        consumer.subscribe(topic + "_before", "*");
        consumer.subscribe(topic + "_after", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt m : messages) {
                Talk.got(name, m, "-");
                TIMES.merge(Talk.body(m), 1, Integer::sum);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static void phase(String when, DefaultMQPushConsumer consumer) throws Exception {
        String own = topic + "_" + when;
        ask(when, "create", QUEUES, () -> {
            admin.createAndUpdateTopicConfig(leader(), new TopicConfig(own, QUEUES, QUEUES, 6));
            return admin.examineTopicRouteInfo(own).getQueueDatas().get(0).getWriteQueueNums();
        });
        List<SendResult> sent = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            String body = when + "-" + i;
            int number = i;
            sent.add(Talk.send(body, () -> producer.send(Talk.message(own, "key" + number, body),
                (queues, message, arg) -> queues.get(number % queues.size()), null)));
        }
        SendResult last = sent.get(count - 1);
        ask(when, "consumed", true, () -> times(when) >= 1);
        ask(when, "stored", (long) count, () -> admin.examineTopicStats(own).getOffsetTable().values().stream()
            .mapToLong(row -> row.getMaxOffset()).sum());
        ask(when, "progress", (long) count, () -> progress(own));
        ask(when, "lag", 0L, () -> admin.examineConsumeStats(GROUP, own).computeTotalDiff());
        String id = consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
        ask(when, "members", id, () -> admin.examineConsumerConnectionInfo(GROUP).getConnectionSet().iterator().next()
            .getClientId());
        ask(when, "running", true, () -> admin.getConsumerRunningInfo(GROUP, id, false).getSubscriptionSet().stream()
            .anyMatch(row -> row.getTopic().equals(own)));
        ask(when, "stack", true, () -> admin.getConsumerRunningInfo(GROUP, id, true).getJstack().contains("TID"));
        ask(when, "status", QUEUES, () -> admin.getConsumeStatus(own, GROUP, id).get(id).size());
        ask(when, "by-key", 1, () -> admin.queryMessage(own, "key1", 9, 0, System.currentTimeMillis() + 60_000)
            .getMessageList().size());
        ask(when, "by-offset-id", "key" + (count - 1), () -> admin.viewMessage(own, last.getOffsetMsgId()).getKeys());
        ask(when, "by-unique-id", "key" + (count - 1), () -> admin.viewMessage(own, last.getMsgId()).getKeys());
        int before = TIMES.get(when + "-" + (count - 1));
        ask(when, "direct", "CR_SUCCESS", () -> "" + admin.consumeMessageDirectly(GROUP, id, own, last.getMsgId())
            .getConsumeResult());
        ask(when, "direct-came", true, () -> TIMES.get(when + "-" + (count - 1)) > before);
        ask(when, "reset", QUEUES, () -> admin.resetOffsetByTimestamp(own, GROUP, 0, true).size());
        ask(when, "came-again", true, () -> times(when) >= 2);
        ask(when, "progress-again", (long) count, () -> progress(own));
    }

    /** Ask while nobody is connected. */
    private static void idle(String when, String namesrv) throws Exception {
        String own = topic + "_" + when;
        ask(when, "nobody", true, () -> {
            try {
                admin.examineConsumerConnectionInfo(GROUP);
                return false;
            } catch (org.apache.rocketmq.client.exception.MQBrokerException e) {
                return e.getResponseCode() == 206;
            }
        });
        ask(when, "reset-idle", QUEUES, () -> admin.resetOffsetByTimestampOld(GROUP, own, 0, true).size());
        ask(when, "progress-idle", 0L, () -> progress(own));
        TIMES.clear();
        DefaultMQPushConsumer consumer = member(namesrv, "second");
        ask(when, "came-to-another", true, () -> times(when) >= 1);
        consumer.shutdown();
    }

    private static long progress(String own) throws Exception {
        return admin.examineConsumeStats(GROUP, own).getOffsetTable().entrySet().stream()
            .filter(row -> row.getKey().getTopic().equals(own)).mapToLong(row -> row.getValue().getConsumerOffset()).sum();
    }

    /** Return how often the message came that came least often. */
    private static int times(String when) {
        List<Integer> found = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            found.add(TIMES.getOrDefault(when + "-" + i, 0));
        }
        return Collections.min(found);
    }

    private static String leader() throws Exception {
        return admin.examineBrokerClusterInfo().getBrokerAddrTable().values().iterator().next().getBrokerAddrs().get(0L);
    }

    private static void ask(String when, String name, Object wanted, Callable<Object> question) throws Exception {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        Object told;
        while (true) {
            try {
                told = question.call();
            } catch (Exception e) {
                told = e;
            }
            if (Objects.equals(told, wanted) || System.currentTimeMillis() > end) {
                break;
            }
            Thread.sleep(200);
        }
        Talk.say("CASE " + when + " " + name + " " + (Objects.equals(told, wanted) ? "right" : told));
    }
}
