package ledgermq;

import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

/**
 * Sends, every third message in a transaction that is committed when the broker asks; gives each message back once.
 *
 * Usage: Secured NAMESRV TOPIC COUNT GROUP [ACCESS SECRET ACCESS SECRET]. With the keys of a producer and a consumer
 * all of it is signed.
 */
public final class Secured {
    private Secured() { }

    /** Does not know before it is asked. */
    private static final class Late implements TransactionListener {
        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object arg) {
            return LocalTransactionState.UNKNOW;
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            Talk.say("CHECK " + Talk.body(message));
            return LocalTransactionState.COMMIT_MESSAGE;
        }
    }

    public static void main(String[] args) throws Exception {
        RPCHook sending = hook(args, 4);
        DefaultMQProducer producer = Talk.ready(new DefaultMQProducer("secured_producer", sending), args[0]);
        producer.start();
        TransactionMQProducer late = Talk.ready(new TransactionMQProducer("secured_transactions", sending), args[0]);
        late.setTransactionListener(new Late());
        late.start();
        DefaultMQPushConsumer consumer = member(args);
        int count = Integer.parseInt(args[2]);
        for (int i = 0; i < count; i++) {
            if (i == count / 2) {
                Talk.half();
            }
            String body = "secured-" + i;
            Message message = Talk.message(args[1], "k", body);
            boolean isLate = i % 3 == 0;
            Talk.send(body, () -> isLate ? late.sendMessageInTransaction(message, null) : producer.send(message));
        }
        Talk.untilTold();
        producer.shutdown();
        late.shutdown();
        consumer.shutdown();
    }

    private static DefaultMQPushConsumer member(String[] args) throws Exception {
        DefaultMQPushConsumer consumer = Talk.ready(
            new DefaultMQPushConsumer(args[3], hook(args, 6), new AllocateMessageQueueAveragely()), args[0], "c");
        consumer.subscribe(args[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt m = messages.get(0);
            Talk.got("c", m, "-");
            context.setDelayLevelWhenNextConsume(1);
            return m.getReconsumeTimes() == 0
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    private static RPCHook hook(String[] args, int at) {
        return args.length <= at ? null : new AclClientRPCHook(new SessionCredentials(args[at], args[at + 1]));
    }
}
