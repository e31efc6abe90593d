// Command driver sends and consumes with the published Go client of RocketMQ 4, and tells the test
// in lines: ACK body queue, GOT body queue times, CHECK body, REPLY body body. HALF waits for a line on
// the input.
//
// Usage: driver KIND NAMESRV TOPIC COUNT, where KIND is one of plain, tags, sql, orderly, delay, retry,
// transact, ask.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

// The client looks for a new leader every 30 s.
const attempts = 1000

var (
	telling sync.Mutex
	input   = bufio.NewReader(os.Stdin)
)

func say(words ...any) {
	telling.Lock()
	defer telling.Unlock()
	fmt.Println(words...)
}

func must(err error) {
	if err != nil {
		say("ERR", strings.ReplaceAll(err.Error(), "\n", " "))
		os.Exit(1)
	}
}

func waitForLine() { _, _ = input.ReadString('\n') }

// listener executes and answers by the number in a body: 0 and 1 of five commit, 2 rolls back, 3
// commits when asked for the second time, 4 rolls back when asked.
type listener struct {
	mutex sync.Mutex
	asked map[string]int
}

func number(body []byte) int {
	parts := strings.Split(string(body), "-")
	found, err := strconv.Atoi(parts[len(parts)-1])
	if err != nil {
		return 0
	}
	return found
}

func (l *listener) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	switch number(m.Body) % 5 {
	case 2:
		return primitive.RollbackMessageState
	case 3, 4:
		return primitive.UnknowState
	}
	return primitive.CommitMessageState
}

func (l *listener) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.asked[string(m.Body)]++
	say("CHECK", string(m.Body), l.asked[string(m.Body)])
	switch kind := number(m.Body) % 5; {
	case kind == 3 && l.asked[string(m.Body)] == 1:
		return primitive.UnknowState
	case kind == 2 || kind == 4:
		return primitive.RollbackMessageState
	}
	return primitive.CommitMessageState
}

type run struct {
	kind, namesrv, topic string
	count                int
	plain                rocketmq.Producer
	transactions         rocketmq.TransactionProducer
}

func (r *run) startProducer() {
	servers := primitive.NewPassthroughResolver([]string{r.namesrv})
	options := []producer.Option{
		producer.WithNsResolver(servers),
		producer.WithGroupName("go_producer_" + r.kind),
		producer.WithRetry(2),
		producer.WithSendMsgTimeout(2 * time.Second),
	}
	if r.kind == "orderly" {
		options = append(options, producer.WithQueueSelector(producer.NewHashQueueSelector()))
	}
	var err error
	if r.kind == "transact" {
		r.transactions, err = rocketmq.NewTransactionProducer(
			&listener{asked: map[string]int{}}, options...)
		must(err)
		must(r.transactions.Start())
		return
	}
	r.plain, err = rocketmq.NewProducer(options...)
	must(err)
	must(r.plain.Start())
}

func (r *run) message(i int) *primitive.Message {
	m := primitive.NewMessage(r.topic, []byte(fmt.Sprintf("%s-%d", r.kind, i)))
	m.WithTag([]string{"A", "B"}[i%2]).WithKeys([]string{strconv.Itoa(i)})
	m.WithProperty("price", strconv.Itoa(i))
	switch r.kind {
	case "orderly":
		m.WithShardingKey(strconv.Itoa(i % 5))
	case "delay":
		m.WithDelayTimeLevel(1 + i%2)
	}
	return m
}

// send tries until the broker has acknowledged; the client itself gives up after two more attempts.
func (r *run) send(i int) {
	for attempt := 0; ; attempt++ {
		var queue int
		var err error
		if r.transactions != nil {
			var result *primitive.TransactionSendResult
			result, err = r.transactions.SendMessageInTransaction(context.Background(), r.message(i))
			if err == nil && result.SendResult != nil && result.Status == primitive.SendOK {
				queue = result.MessageQueue.QueueId
			} else if err == nil {
				err = fmt.Errorf("no result")
			}
		} else {
			var result *primitive.SendResult
			if r.kind == "ask" {
				r.ask(i)
				return
			}
			result, err = r.plain.SendSync(context.Background(), r.message(i))
			if err == nil {
				queue = result.MessageQueue.QueueId
			}
		}
		if err == nil {
			say("ACK", fmt.Sprintf("%s-%d", r.kind, i), queue, time.Now().UnixMilli())
			return
		}
		if attempt == attempts {
			must(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// ask waits for a reply once: who asks again has two of them.
func (r *run) ask(i int) {
	reply, err := r.plain.Request(context.Background(), 20*time.Second, r.message(i))
	must(err)
	say("REPLY", fmt.Sprintf("%s-%d", r.kind, i), string(reply.Body))
}

// reply answers every second request without a body, as the client's own function makes a reply.
func (r *run) reply(m *primitive.MessageExt) {
	reply, err := consumer.CreateReplyMessage(m, nil)
	must(err)
	if number(m.Body)%2 == 0 {
		reply.Body = append([]byte("re:"), m.Body...)
	}
	_, err = r.plain.SendSync(context.Background(), reply)
	must(err)
}

func (r *run) listen(ctx context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	said := consumer.ConsumeSuccess
	for _, m := range ms {
		say("GOT", string(m.Body), m.Queue.QueueId, m.ReconsumeTimes, time.Now().UnixMilli())
		if r.kind == "ask" {
			r.reply(m)
		}
		if r.kind == "retry" && m.ReconsumeTimes < 1 {
			if concurrent, ok := primitive.GetConcurrentlyCtx(ctx); ok {
				concurrent.DelayLevelWhenNextConsume = 1
			}
			said = consumer.ConsumeRetryLater
		}
	}
	return said, nil
}

func (r *run) consume() rocketmq.PushConsumer {
	c, err := rocketmq.NewPushConsumer(
		consumer.WithGroupName("go_"+r.topic),
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{r.namesrv})),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(r.kind == "orderly"),
		consumer.WithConsumeMessageBatchMaxSize(1),
	)
	must(err)
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}
	switch r.kind {
	case "tags":
		selector.Expression = "B || C"
	case "sql":
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: "price > 9"}
	}
	must(c.Subscribe(r.topic, selector, r.listen))
	must(c.Start())
	return c
}

func main() {
	rlog.SetLogLevel("error")
	count, err := strconv.Atoi(os.Args[4])
	must(err)
	r := &run{kind: os.Args[1], namesrv: os.Args[2], topic: os.Args[3], count: count}
	r.startProducer()
	c := r.consume()
	for i := 0; i < count; i++ {
		if i == count/2 {
			say("HALF")
			waitForLine()
		}
		r.send(i)
	}
	say("SENT")
	waitForLine()
	_ = c.Shutdown()
	if r.transactions != nil {
		_ = r.transactions.Shutdown()
	} else {
		_ = r.plain.Shutdown()
	}
}
