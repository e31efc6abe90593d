package ledgermq;

import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Sends transactions: of five in turn, two are committed, one is rolled back, one is committed when the
 * broker asks for the second time, one rolled back when it asks. Usage: Transact NAMESRV TOPIC COUNT.
 */
public final class Transact {
    private Transact() { }

    /** The test's plan: 0 and 1 commit, 2 rolls back, 3 commits when asked, 4 rolls back when asked. */
    private static final class Plan implements TransactionListener {
        private final ConcurrentHashMap<String, Integer> asked = new ConcurrentHashMap<>();

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object arg) {
            switch ((Integer) arg % 5) {
                case 2: return LocalTransactionState.ROLLBACK_MESSAGE;
                case 3: case 4: return LocalTransactionState.UNKNOW;
                default: return LocalTransactionState.COMMIT_MESSAGE;
            }
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            int times = asked.merge(message.getKeys(), 1, Integer::sum);
            Talk.say("CHECK " + Talk.body(message) + " " + times);
            int number = Integer.parseInt(message.getKeys()) % 5;
            if (number == 3 && times == 1) {
                return LocalTransactionState.UNKNOW;
            }
            return number == 2 || number == 4
                ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE;
        }
    }

    public static void main(String[] args) throws Exception {
        TransactionMQProducer producer = Talk.ready(new TransactionMQProducer("transact_producer"), args[0]);
        producer.setTransactionListener(new Plan());
        producer.start();
        Talk.send("transact-first", () -> producer.send(Talk.message(args[1], "0", "transact-first")));
        DefaultMQPushConsumer consumer = Talk.consumer(args[0], "transact_group", "c");
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt m : messages) {
                Talk.got("c", m, m.getTransactionId());
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        int count = Integer.parseInt(args[2]);
        for (int i = 0; i < count; i++) {
            if (i == count / 2) {
                Talk.half();
            }
            String body = "transact-" + i;
            int number = i;
            Message message = Talk.message(args[1], "" + i, body);
            Talk.send(body, () -> producer.sendMessageInTransaction(message, number));
        }
        Talk.untilTold();
        producer.shutdown();
        consumer.shutdown();
    }
}
