;; Runs Jepsen's own checkers over histories that we wrote, and says how many of each anomaly they
;; found. Usage: java -cp JEPSEN clojure.main check.clj FOLDER OUT
;;
;; Reads each FOLDER/*.edn and writes one line of EDN for it to OUT. Nothing is judged here: what
;; counts as an anomaly is said by jepsen.tests.kafka and jepsen.checker alone.
(ns ledgermq.check
  (:require [clojure.edn :as edn]
            [clojure.java.io :as io]
            [elle.txn]
            [jepsen.checker :as checker]
            [jepsen.history :as h]
            [jepsen.tests.kafka :as kafka]))

;; Elle gives a search up after a second, which a busy machine does not find much in.
(alter-var-root #'elle.txn/cycle-search-timeout (constantly 20000))

(defn read-ops
  "Return the operations of a file, one form each; what a tag says is not looked at."
  [file]
  (with-open [in (java.io.PushbackReader. (io/reader file))]
    (let [options {:eof ::end, :default (fn [_tag value] value)}]
      (vec (take-while #(not= ::end %) (repeatedly #(edn/read options in)))))))

(defn thrown
  "Return the word for what a checker threw: its :type, wherever in the chain of causes it is."
  [error]
  (let [causes (take-while some? (iterate #(.getCause ^Throwable %) error))]
    (or (some (comp :type ex-data) causes) (str (last causes)))))

(defmacro told-or-thrown [& body]
  `(try (do ~@body) (catch Throwable error# {:thrown (thrown error#)})))

(defn size
  "Return how many there are of an anomaly: messages or places, each once where several saw it."
  [kind found]
  (case kind
    :unseen (reduce + (vals (:unseen found)))
    :G1a (count (distinct (map (juxt :key :value) found)))
    (if (coll? found) (count found) 1)))

(defn kafka-told
  "Return what the Kafka workload's analysis found. ww-deps: offsets say which send came before."
  [history]
  (told-or-thrown
   (let [options {:ww-deps true, :sub-via #{:assign}}
         errors (:errors (kafka/analysis history options))]
     {:valid? (empty? (remove (kafka/allowed-error-types options) (keys errors)))
      :errors (into (sorted-map) (map (fn [[kind found]] [kind (size kind found)]) errors))})))

(defn topics
  "Return the topics that a poll found something of; our keys are topic/queue."
  [op]
  (map #(subs % 0 (.lastIndexOf ^String % "/")) (keys (second (first (:value op))))))

(defn as-queue
  "Return operations of the Kafka workload as those of a queue: what one group was sent and got."
  [group ops]
  (let [polls (filter #(and (= :poll (:f %)) (= group (:group %))) ops)
        mine (set (mapcat topics polls))]
    (for [{:keys [f value type] :as op} ops
          :let [[_ found sent] (first value)
                is-mine (if (= f :send)
                          (some #(.startsWith ^String found (str % "/")) mine)
                          (= group (:group op)))]
          :when is-mine]
      (if (= f :send)
        (assoc op :f :enqueue, :value (if (vector? sent) (second sent) sent))
        (assoc op :f :drain, :value (when (= type :ok) (map second (mapcat val found))))))))

(defn queue-told [ops]
  (told-or-thrown
   (let [history (h/history (map-indexed (fn [number op] (assoc op :index number)) ops))
         found (checker/check (checker/total-queue) {:name "ours"} history {})]
     (select-keys found [:valid? :lost-count :unexpected-count :duplicated-count
                         :recovered-count]))))

(defn judge
  "Return what both checkers found in a file, the queue's by group; a queue workload has none."
  [file]
  (let [ops (read-ops file)
        of #(filter (comp % :f) (filter (comp int? :process) ops))
        of-kafka (of #{:send :poll :txn})
        of-queue (of #{:enqueue :dequeue :drain})
        groups (distinct (keep :group of-kafka))]
    {:file (.getName ^java.io.File file)
     :kafka (when (seq of-kafka) (kafka-told (h/history ops)))
     :queues (if (seq of-queue)
               {"" (queue-told of-queue)}
               (into {} (for [group groups] [group (queue-told (as-queue group of-kafka))])))}))

(let [[folder out] *command-line-args*
      files (sort (filter #(.endsWith (.getName ^java.io.File %) ".edn")
                          (.listFiles (io/file folder))))]
  (with-open [lines (io/writer out)]
    (doseq [file files]
      (.write lines (str (pr-str (judge file)) "\n"))))
  (shutdown-agents))
