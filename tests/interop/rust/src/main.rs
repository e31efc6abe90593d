//! Command driver sends and consumes with the published Rust client, and tells the test in lines:
//! ACK body queue ms, GOT body queue times ms, CHECK body times. HALF waits for a line on the input.
//!
//! Usage: driver KIND NAMESRV TOPIC COUNT, where KIND is one of plain, tags, sql, orderly, delay,
//! retry, transact.

use std::any::Any;
use std::collections::HashMap;
use std::error::Error;
use std::fmt::Display;
use std::io::{Write, stdin, stdout};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rocketmq_client_rust::{
    ClientResult, ClientRuntime, ClientRuntimeConfig, ConsumeConcurrentlyContext,
    ConsumeConcurrentlyStatus, ConsumeOrderlyContext, ConsumeOrderlyStatus, DefaultMQProducer,
    DefaultMQPushConsumer, LocalTransactionState, MQPushConsumer, MessageListenerConcurrently,
    MessageListenerOrderly, MessageQueueSelector, MessageSelector, SelectMessageQueueByHash,
    TransactionListener, TransactionMQProducer,
};
use rocketmq_model::common::consumer::consume_from_where::ConsumeFromWhere;
use rocketmq_model::common::message::MessageTrait;
use rocketmq_model::common::message::message_ext::MessageExt;
use rocketmq_model::common::message::message_single::Message;
use rocketmq_observability::TelemetryRuntimeGuard;
use rocketmq_runtime::RuntimeOwner;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The client looks for a new leader every 30 s.
const ATTEMPTS: u32 = 1_000;
const SEND_TIMEOUT_MS: u32 = 2_000;

fn say(line: impl Display) {
    let mut out = stdout().lock();
    let _ = writeln!(out, "{line}");
    let _ = out.flush();
}

fn wait_for_line() {
    let mut line = String::new();
    let _ = stdin().read_line(&mut line);
}

fn now_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis())
}

fn text(body: Option<impl AsRef<[u8]>>) -> String {
    body.map(|bytes| String::from_utf8_lossy(bytes.as_ref()).into_owned()).unwrap_or_default()
}

/// The number at the end of a body.
fn number(body: &str) -> u32 {
    body.rsplit('-').next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

/// Answers by the number in a body: 0 and 1 of five commit, 2 rolls back, 3 commits when asked for
/// the second time, 4 rolls back when asked.
#[derive(Default)]
struct Answers {
    asked: Mutex<HashMap<String, u32>>,
}

impl TransactionListener for Answers {
    fn execute_local_transaction(
        &self,
        message: &dyn MessageTrait,
        _: Option<&(dyn Any + Send + Sync)>,
    ) -> LocalTransactionState {
        match number(&text(message.get_body())) % 5 {
            2 => LocalTransactionState::RollbackMessage,
            3 | 4 => LocalTransactionState::Unknown,
            _ => LocalTransactionState::CommitMessage,
        }
    }

    fn check_local_transaction(&self, message: &MessageExt) -> LocalTransactionState {
        let body = text(message.body());
        let mut asked = self.asked.lock().expect("nobody panics with it");
        let times = asked.entry(body.clone()).or_insert(0);
        *times += 1;
        say(format_args!("CHECK {body} {times}"));
        match (number(&body) % 5, *times) {
            (3, 1) => LocalTransactionState::Unknown,
            (2 | 4, _) => LocalTransactionState::RollbackMessage,
            _ => LocalTransactionState::CommitMessage,
        }
    }
}

fn got(message: &MessageExt) {
    let (body, queue) = (text(message.body()), message.queue_id());
    say(format_args!("GOT {body} {queue} {} {}", message.reconsume_times(), now_ms()));
}

struct Concurrent {
    fails_first: bool,
}

impl MessageListenerConcurrently for Concurrent {
    fn consume_message(
        &self,
        messages: &[&MessageExt],
        _: &ConsumeConcurrentlyContext,
    ) -> ClientResult<ConsumeConcurrentlyStatus> {
        messages.iter().for_each(|message| got(message));
        let is_first = messages.iter().any(|message| message.reconsume_times() < 1);
        Ok(if self.fails_first && is_first {
            ConsumeConcurrentlyStatus::ReconsumeLater
        } else {
            ConsumeConcurrentlyStatus::ConsumeSuccess
        })
    }
}

struct Orderly;

impl MessageListenerOrderly for Orderly {
    fn consume_message(
        &self,
        messages: &[&MessageExt],
        _: &mut ConsumeOrderlyContext,
    ) -> ClientResult<ConsumeOrderlyStatus> {
        messages.iter().for_each(|message| got(message));
        Ok(ConsumeOrderlyStatus::Success)
    }
}

enum Sender {
    Plain(DefaultMQProducer),
    Transactions(TransactionMQProducer),
}

struct Run {
    kind: String,
    namesrv: String,
    topic: String,
    count: u32,
}

impl Run {
    fn message(&self, i: u32) -> Outcome<Message> {
        let tag = if i % 2 == 0 { "A" } else { "B" };
        let message = Message::builder()
            .topic(self.topic.as_str())
            .tags(tag)
            .keys(vec![i.to_string()])
            .body(format!("{}-{i}", self.kind).into_bytes())
            .raw_property("price", i.to_string())?;
        let message = if self.kind == "delay" {
            message.delay_level(1 + (i % 2) as i32)
        } else {
            message
        };
        Ok(message.build()?)
    }

    async fn sender(&self, runtime: Arc<ClientRuntime>) -> Outcome<Sender> {
        let group = format!("rust_producer_{}", self.kind);
        if self.kind == "transact" {
            let mut producer = TransactionMQProducer::builder(runtime)
                .producer_group(group)
                .name_server_addr(self.namesrv.as_str())
                .topics(vec![self.topic.as_str()])
                .transaction_listener(Answers::default())
                .build();
            producer.start().await?;
            return Ok(Sender::Transactions(producer));
        }
        let mut producer = DefaultMQProducer::builder(runtime)
            .producer_group(group)
            .name_server_addr(self.namesrv.as_str())
            .send_msg_timeout(SEND_TIMEOUT_MS)
            .build();
        producer.start().await?;
        Ok(Sender::Plain(producer))
    }

    /// Sends once; returns the queue of an acknowledged message.
    async fn send_once(&self, sender: &Sender, i: u32) -> Outcome<i32> {
        let message = self.message(i)?;
        let result = match sender {
            Sender::Transactions(producer) => {
                producer.send_message_in_transaction::<(), _>(message, None).await?.send_result
            }
            Sender::Plain(producer) if self.kind == "orderly" => {
                let by_hash = SelectMessageQueueByHash;
                let key = (i % 5).to_string();
                producer
                    .send_with_selector(message, |queues, it, arg| by_hash.select(queues, it, arg), key)
                    .await?
            }
            Sender::Plain(producer) => producer.send(message).await?,
        };
        let queue = result.and_then(|one| one.message_queue).ok_or("the send has no result")?;
        Ok(queue.queue_id())
    }

    /// Tries until the broker has acknowledged; the client itself gives up after two more attempts.
    async fn send(&self, sender: &Sender, i: u32) -> Outcome<()> {
        for attempt in 0.. {
            match self.send_once(sender, i).await {
                Ok(queue) => {
                    say(format_args!("ACK {}-{i} {queue} {}", self.kind, now_ms()));
                    return Ok(());
                }
                Err(error) if attempt == ATTEMPTS => return Err(error),
                Err(error) => {
                    eprintln!("{}-{i} is tried again: {error}", self.kind);
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        Ok(())
    }

    async fn consumer(&self, runtime: Arc<ClientRuntime>) -> Outcome<DefaultMQPushConsumer> {
        let mut consumer = DefaultMQPushConsumer::builder(runtime)
            .consumer_group(format!("rust_{}", self.topic))
            .name_server_addr(self.namesrv.as_str())
            .consume_from_where(ConsumeFromWhere::ConsumeFromFirstOffset)
            .consume_message_batch_max_size(1)
            .build();
        match self.kind.as_str() {
            "sql" => {
                let selector = MessageSelector::by_sql("price > 9");
                consumer.subscribe_with_selector(&self.topic, Some(selector)).await?;
            }
            "tags" => consumer.subscribe(self.topic.as_str(), "B||C").await?,
            _ => consumer.subscribe(self.topic.as_str(), "*").await?,
        }
        if self.kind == "orderly" {
            consumer.register_message_listener_orderly(Orderly);
        } else {
            let fails_first = self.kind == "retry";
            consumer.register_message_listener_concurrently(Concurrent { fails_first });
        }
        consumer.start().await?;
        Ok(consumer)
    }

    async fn play(&self, runtime: Arc<ClientRuntime>) -> Outcome<()> {
        let mut sender = self.sender(runtime.clone()).await?;
        let mut consumer = self.consumer(runtime).await?;
        for i in 0..self.count {
            if i == self.count / 2 {
                say("HALF");
                tokio::task::spawn_blocking(wait_for_line).await?;
            }
            self.send(&sender, i).await?;
        }
        say("SENT");
        tokio::task::spawn_blocking(wait_for_line).await?;
        consumer.shutdown().await;
        match &mut sender {
            Sender::Plain(producer) => producer.shutdown().await,
            Sender::Transactions(producer) => producer.shutdown().await,
        }
        Ok(())
    }
}

fn main() -> Outcome<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kind, namesrv, topic, count] = words.as_slice() else {
        return Err("usage: driver KIND NAMESRV TOPIC COUNT".into());
    };
    let run = Run {
        kind: kind.clone(),
        namesrv: namesrv.clone(),
        topic: topic.clone(),
        count: count.parse()?,
    };
    let owner = RuntimeOwner::new()?;
    let telemetry = TelemetryRuntimeGuard::noop();
    let runtime = ClientRuntime::try_new(
        owner.root_context().component("driver"),
        ClientRuntimeConfig::default(),
        telemetry.handle(),
    )?;
    let played = owner.block_on(async {
        let played = run.play(runtime.clone()).await;
        runtime.shutdown().await;
        played
    });
    owner.shutdown_runtime_blocking()?;
    if let Err(error) = &played {
        say(format_args!("ERR {}", error.to_string().replace('\n', " ")));
    }
    played
}
