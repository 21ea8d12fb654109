import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.InvalidRecordStateException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What share groups promise, one small case each: `ok NAME` or `FAIL NAME reason`. Arguments: bootstrap, prefix of topics and groups. */
public final class ShareCases {
    private static final long LOCK = 2000;
    private static final Duration QUIET = Duration.ofMillis(800), SOON = Duration.ofSeconds(15);
    private static String bootstrap, prefix;
    private static Admin admin;

    private interface Case {
        void run(Bench bench) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        prefix = arguments[1];
        Map<String, Case> cases = new LinkedHashMap<>();
        cases.put("accepted", ShareCases::accepted);
        cases.put("released", ShareCases::released);
        cases.put("rejected", ShareCases::rejected);
        cases.put("renewed", ShareCases::renewed);
        cases.put("lock-runs-out", ShareCases::lockRunsOut);
        cases.put("delivery-limit", ShareCases::deliveryLimit);
        cases.put("record-limit", ShareCases::recordLimit);
        cases.put("implicit", ShareCases::implicit);
        cases.put("two-members", ShareCases::twoMembers);
        cases.put("member-leaves", ShareCases::memberLeaves);
        cases.put("read-committed", ShareCases::readCommitted);
        cases.put("earliest", bench -> starts(bench, "earliest", 8));
        cases.put("latest", bench -> starts(bench, "latest", 3));
        cases.put("by-duration", ShareCases::byDuration);
        try (Admin shared = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin = shared;
            Map<String, Future<?>> running = new LinkedHashMap<>();
            try (Closing pool = new Closing()) {
                cases.forEach((name, each) -> running.put(name, pool.threads.submit(() -> {
                    try (Bench bench = new Bench(name)) {
                        each.run(bench);
                    }
                    return null;
                })));
                for (var each : running.entrySet()) {
                    try {
                        each.getValue().get();
                        System.out.println("ok " + each.getKey());
                    } catch (Exception failure) {
                        Throwable cause = failure.getCause() == null ? failure : failure.getCause();
                        System.out.println("FAIL " + each.getKey() + " " + String.valueOf(cause.getMessage()).replace('\n', ' '));
                        cause.printStackTrace();
                    }
                }
            }
        }
    }

    private static final class Closing implements AutoCloseable {
        final java.util.concurrent.ExecutorService threads = Executors.newCachedThreadPool();

        @Override
        public void close() {
            threads.shutdownNow();
        }
    }

    /** A topic, a group of its own, and who works with them. */
    private static final class Bench implements AutoCloseable {
        final String topic, group;
        final List<Worker> workers = new ArrayList<>();

        Bench(String name) throws Exception {
            topic = group = prefix + "-" + name;
            admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
            configure("share.auto.offset.reset", "earliest", "share.record.lock.duration.ms", Long.toString(LOCK));
        }

        void configure(String... pairs) throws Exception {
            List<AlterConfigOp> wish = new ArrayList<>();
            for (int at = 0; at < pairs.length; at += 2) {
                wish.add(new AlterConfigOp(new ConfigEntry(pairs[at], pairs[at + 1]), AlterConfigOp.OpType.SET));
            }
            admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), wish)).all().get();
        }

        /** Writes numbers as one batch. */
        void write(int from, int to) throws Exception {
            write(from, to, System.currentTimeMillis());
        }

        void write(int from, int to, long at) throws Exception {
            try (var producer = producer(null)) {
                send(producer, from, to, at);
            }
        }

        KafkaProducer<String, String> producer(String transactional) {
            Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "linger.ms", 200));
            if (transactional != null) {
                config.put("transactional.id", transactional);
            }
            return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
        }

        void send(KafkaProducer<String, String> producer, int from, int to, long at) throws Exception {
            List<Future<?>> acknowledged = new ArrayList<>();
            for (int number = from; number < to; number++) {
                acknowledged.add(producer.send(new ProducerRecord<>(topic, 0, at, "key", Integer.toString(number))));
            }
            producer.flush();
            for (Future<?> each : acknowledged) {
                each.get();
            }
        }

        Worker worker(Object... more) {
            Worker made = new Worker(this, more);
            workers.add(made);
            return made;
        }

        /** Waits until nothing is left to do before `end`, the topic's. Where the group stands may follow later: it is not behind it. */
        void settled(long end) throws Exception {
            TopicPartition where = new TopicPartition(topic, 0);
            long until = System.currentTimeMillis() + 5000;
            while (true) {
                var found = admin.listShareGroupOffsets(Map.of(group, new ListShareGroupOffsetsSpec().topicPartitions(List.of(where))))
                    .partitionsToOffsetInfo(group).get().get(where);
                if (found != null && found.startOffset() <= end && found.lag().orElse(-1L) == 0) {
                    return;
                }
                check(System.currentTimeMillis() < until, "the group is at " + found + " instead of lag 0 and no further than " + end);
                Thread.sleep(50);
            }
        }

        /** Waits until so many members have the partition. */
        void assigned(int members) throws Exception {
            long until = System.currentTimeMillis() + SOON.toMillis();
            while (true) {
                long found = -1;
                try {
                    found = admin.describeShareGroups(List.of(group)).describedGroups().get(group).get().members().stream()
                        .filter(one -> !one.assignment().topicPartitions().isEmpty()).count();
                } catch (ExecutionException early) {
                    check(early.getCause() instanceof GroupIdNotFoundException, early.toString());
                }
                if (found == members) {
                    return;
                }
                check(System.currentTimeMillis() < until, found + " members have the partition");
                Thread.sleep(50);
            }
        }

        @Override
        public void close() {
            workers.forEach(Worker::close);
        }
    }

    private static final class Worker implements AutoCloseable {
        final KafkaShareConsumer<String, String> consumer;
        boolean closed;

        Worker(Bench bench, Object... more) {
            Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", bench.group,
                "share.acknowledgement.mode", "explicit", "fetch.max.wait.ms", 200));
            for (int at = 0; at < more.length; at += 2) {
                config.put((String) more[at], more[at + 1]);
            }
            consumer = new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(bench.topic));
        }

        /** The records of one poll, whenever they come. */
        List<ConsumerRecord<String, String>> next() {
            long until = System.currentTimeMillis() + SOON.toMillis();
            while (System.currentTimeMillis() < until) {
                var got = poll(Duration.ofMillis(500));
                if (!got.isEmpty()) {
                    return got;
                }
            }
            throw new IllegalStateException("nothing comes");
        }

        List<ConsumerRecord<String, String>> poll(Duration wait) {
            List<ConsumerRecord<String, String>> got = new ArrayList<>();
            consumer.poll(wait).forEach(got::add);
            return got;
        }

        void nothing() {
            long until = System.currentTimeMillis() + QUIET.toMillis();
            while (System.currentTimeMillis() < until) {
                var got = poll(Duration.ofMillis(200));
                check(got.isEmpty(), "came although there is nothing to come: " + numbers(got));
            }
        }

        void say(List<ConsumerRecord<String, String>> records, AcknowledgeType type) {
            records.forEach(one -> consumer.acknowledge(one, type));
        }

        /** Says it and commits; the outcome. */
        void commit(List<ConsumerRecord<String, String>> records, AcknowledgeType type) {
            say(records, type);
            commit();
        }

        void commit() {
            consumer.commitSync().values().forEach(error -> error.ifPresent(some -> {
                throw some;
            }));
        }

        /** Takes and accepts until `count` have come; their numbers in order of coming. */
        List<Integer> accept(int count) {
            List<Integer> all = new ArrayList<>();
            while (all.size() < count) {
                var got = next();
                all.addAll(numbers(got));
                commit(got, AcknowledgeType.ACCEPT);
            }
            return all;
        }

        @Override
        public void close() {
            if (!closed) {
                closed = true;
                consumer.close(Duration.ofSeconds(2));
            }
        }
    }

    private static void accepted(Bench bench) throws Exception {
        bench.write(0, 10);
        Worker worker = bench.worker();
        var got = worker.next();
        is(numbers(got), range(0, 10));
        is(counts(got), Set.of(1));
        worker.commit(got, AcknowledgeType.ACCEPT);
        worker.nothing();
        bench.settled(10);
        worker.close();
        bench.worker().nothing();
    }

    private static void released(Bench bench) throws Exception {
        bench.write(0, 10);
        Worker worker = bench.worker();
        var got = worker.next();
        worker.say(got.subList(0, 4), AcknowledgeType.ACCEPT);
        worker.say(got.subList(4, 7), AcknowledgeType.RELEASE);
        worker.say(got.subList(7, 10), AcknowledgeType.ACCEPT);
        worker.commit();
        got = worker.next();
        is(numbers(got), range(4, 7));
        is(counts(got), Set.of(2));
        worker.commit(got, AcknowledgeType.ACCEPT);
        bench.settled(10);
    }

    private static void rejected(Bench bench) throws Exception {
        bench.write(0, 10);
        Worker worker = bench.worker();
        var got = worker.next();
        worker.say(got.subList(0, 5), AcknowledgeType.REJECT);
        worker.say(got.subList(5, 10), AcknowledgeType.ACCEPT);
        worker.commit();
        worker.nothing();
        bench.settled(10);
    }

    private static void renewed(Bench bench) throws Exception {
        bench.write(0, 2);
        Worker worker = bench.worker(), other = bench.worker();
        var got = worker.next();
        is(numbers(got), range(0, 2));
        for (int round = 0; round < 5; round++) {
            Thread.sleep(LOCK / 2 - 300);
            worker.commit(got, AcknowledgeType.RENEW);
            check(other.poll(Duration.ofMillis(200)).isEmpty(), "another member got a record that was renewed");
            got = worker.next();
            is(numbers(got), range(0, 2));
            is(counts(got), Set.of(1));
        }
        worker.commit(got, AcknowledgeType.ACCEPT);
        bench.settled(2);
    }

    private static void lockRunsOut(Bench bench) throws Exception {
        bench.write(0, 3);
        Worker slow = bench.worker();
        var held = slow.next();
        long got = System.currentTimeMillis();
        is(slow.consumer.acquisitionLockTimeoutMs().orElse(0), (int) LOCK);
        Worker other = bench.worker();
        var again = other.next();
        long waited = System.currentTimeMillis() - got;
        check(waited > LOCK - 300, "a record is another's after " + waited + " ms of a lock of " + LOCK);
        is(numbers(again), range(0, 3));
        is(counts(again), Set.of(2));
        slow.say(held, AcknowledgeType.ACCEPT);
        for (var error : slow.consumer.commitSync().values()) {
            check(error.orElse(null) instanceof InvalidRecordStateException, "what is said after the lock: " + error);
        }
        other.commit(again, AcknowledgeType.ACCEPT);
        bench.settled(3);
    }

    private static void deliveryLimit(Bench bench) throws Exception {
        bench.configure("share.delivery.count.limit", "4");
        bench.write(0, 2);
        Worker worker = bench.worker();
        // What fails often may come one by one.
        Map<Integer, List<Integer>> deliveries = new HashMap<>();
        for (int left = 8; left > 0;) {
            var got = worker.next();
            got.forEach(one -> deliveries.computeIfAbsent(Integer.parseInt(one.value()), none -> new ArrayList<>()).add((int) one.deliveryCount().get()));
            worker.commit(got, AcknowledgeType.RELEASE);
            left -= got.size();
        }
        is(deliveries, Map.of(0, range(1, 5), 1, range(1, 5)));
        worker.nothing();
        bench.settled(2);
    }

    private static void recordLimit(Bench bench) throws Exception {
        bench.write(0, 20);
        Worker worker = bench.worker("share.acquire.mode", "record_limit", "max.poll.records", 3);
        List<Integer> all = new ArrayList<>();
        while (all.size() < 20) {
            var got = worker.next();
            check(got.size() <= 3, got.size() + " records in a poll");
            all.addAll(numbers(got));
            worker.commit(got, AcknowledgeType.ACCEPT);
        }
        is(all, range(0, 20));
        bench.settled(20);
    }

    private static void implicit(Bench bench) throws Exception {
        bench.write(0, 5);
        Worker worker = bench.worker("share.acknowledgement.mode", "implicit");
        is(numbers(worker.next()), range(0, 5));
        worker.nothing();
        bench.settled(5);
        bench.write(5, 8);
        is(numbers(worker.next()), range(5, 8));
        worker.commit();
        bench.settled(8);
    }

    private static void twoMembers(Bench bench) throws Exception {
        Worker[] both = {worker(bench, 10), worker(bench, 10)};
        both[0].nothing();
        both[1].nothing();
        bench.assigned(2);
        both[0].nothing();
        both[1].nothing();
        bench.write(0, 200);
        Set<Integer> all = new TreeSet<>();
        int[] shares = new int[2];
        long until = System.currentTimeMillis() + SOON.toMillis();
        while (all.size() < 200 && System.currentTimeMillis() < until) {
            for (int at = 0; at < 2; at++) {
                var got = both[at].poll(Duration.ofMillis(100));
                for (int number : numbers(got)) {
                    check(all.add(number), number + " came twice");
                }
                shares[at] += got.size();
                both[at].commit(got, AcknowledgeType.ACCEPT);
            }
        }
        is(List.copyOf(all), range(0, 200));
        check(shares[0] > 0 && shares[1] > 0, "one member got all of them");
        bench.settled(200);
    }

    private static Worker worker(Bench bench, int limit) {
        return bench.worker("share.acquire.mode", "record_limit", "max.poll.records", limit);
    }

    private static void memberLeaves(Bench bench) throws Exception {
        bench.configure("share.record.lock.duration.ms", "60000");
        bench.write(0, 6);
        Worker leaving = bench.worker(), other = bench.worker();
        var got = leaving.next();
        is(numbers(got), range(0, 6));
        other.nothing();
        leaving.commit(got.subList(0, 2), AcknowledgeType.ACCEPT);
        leaving.close();
        got = other.next();
        is(numbers(got), range(2, 6));
        is(counts(got), Set.of(2));
        other.commit(got, AcknowledgeType.ACCEPT);
        bench.settled(6);
    }

    private static void readCommitted(Bench bench) throws Exception {
        bench.configure("share.isolation.level", "read_committed");
        try (var producer = bench.producer(bench.topic)) {
            producer.initTransactions();
            for (int from = 0; from < 40; from += 10) {
                producer.beginTransaction();
                bench.send(producer, from, from + 10, System.currentTimeMillis());
                if (from % 20 == 0) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
            producer.beginTransaction();
            bench.send(producer, 40, 45, System.currentTimeMillis());
            List<Integer> wanted = new ArrayList<>(range(10, 20));
            wanted.addAll(range(30, 40));
            Worker worker = bench.worker();
            is(worker.accept(20), wanted);
            worker.nothing();
            producer.commitTransaction();
            is(worker.accept(5), range(40, 45));
            worker.nothing();
        }
    }

    private static void starts(Bench bench, String where, int count) throws Exception {
        bench.configure("share.auto.offset.reset", where);
        bench.write(0, 5);
        Worker worker = bench.worker();
        List<Integer> all = new ArrayList<>();
        if (where.equals("earliest")) {
            all.addAll(worker.accept(5));
        }
        worker.nothing();
        bench.assigned(1);
        // Where the group begins is settled by the first fetch.
        worker.nothing();
        bench.write(5, 8);
        all.addAll(worker.accept(3));
        is(all, range(8 - count, 8));
        bench.settled(8);
    }

    private static void byDuration(Bench bench) throws Exception {
        bench.write(0, 5, System.currentTimeMillis() - 3_600_000);
        bench.write(5, 8);
        bench.configure("share.auto.offset.reset", "by_duration:PT30M");
        Worker worker = bench.worker();
        is(worker.accept(3), range(5, 8));
        worker.nothing();
        bench.settled(8);
    }

    private static List<Integer> numbers(List<ConsumerRecord<String, String>> records) {
        return records.stream().map(one -> Integer.parseInt(one.value())).toList();
    }

    private static Set<Integer> counts(List<ConsumerRecord<String, String>> records) {
        Set<Integer> all = new TreeSet<>();
        records.forEach(one -> all.add((int) one.deliveryCount().orElseThrow()));
        return all;
    }

    private static List<Integer> range(int from, int to) {
        return java.util.stream.IntStream.range(from, to).boxed().toList();
    }

    private static void is(Object found, Object wanted) {
        check(found.equals(wanted), found + " instead of " + wanted);
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException(what);
        }
    }
}
