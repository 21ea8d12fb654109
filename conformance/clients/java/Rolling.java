import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A rolling restart of groups whose members are threads of this process, while each partition gets a record every 20 ms. When everybody has
 * the same share for two seconds, one member after the other closes its consumer, stays away for a while and comes back with a new one; then
 * until everybody has its share again. Prints one line of JSON for each group, times in ms:
 *
 * <ul>
 * <li>`member_pause`: the longest time in which a member got no record, from the last poll with records to the next one. Its own restart does
 * not count: from where it closes to its first record after it. The topic has the broker's times: what a record came late does not count.
 * <li>`partition_pause`: the longest time in which nobody read on in a partition, from the last record read to the next one that nobody had
 * read; not counting what that record came late.
 * <li>`unowned`: from where the old owner had given a partition up (its callback had ended) to where the new one was told (its callback).
 * <li>`rejoin`: from a member's subscription after its restart to its first record.
 * </ul>
 *
 * Of each the worst and the median of all members, or partitions. Arguments: bootstrap, topic, partitions, members, restarts, ms between
 * restarts, ms that a member is away, and groups as name:protocol:kind, the protocol consumer or classic, the kind dynamic or static.
 */
public final class Rolling {
    private static final long EVERY_MS = 20, PACE_MS = 100, SETTLED_MS = 2000, PATIENCE_MS = 120_000;
    private static volatile boolean measures, ends;
    private static final AtomicLong stalled = new AtomicLong(), wrote = new AtomicLong();
    private static String bootstrap, topic;
    private static int partitions, members, away;

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        topic = arguments[1];
        partitions = Integer.parseInt(arguments[2]);
        members = Integer.parseInt(arguments[3]);
        int restarts = Integer.parseInt(arguments[4]), interval = Integer.parseInt(arguments[5]);
        away = Integer.parseInt(arguments[6]);
        List<Group> groups = new ArrayList<>();
        for (String words : Arrays.asList(arguments).subList(7, arguments.length)) {
            String[] parts = words.split(":");
            groups.add(new Group(parts[0], parts[1], parts[2].equals("static")));
        }
        Thread producer = new Thread(Rolling::produce), watch = new Thread(Rolling::watch);
        for (Thread each : List.of(producer, watch)) {
            each.setDaemon(true);
            each.start();
        }
        groups.forEach(Group::start);
        for (Group group : groups) {
            group.settle("begin");
        }
        groups.forEach(Group::begin);
        measures = true;
        for (int at = 0; at < restarts; at++) {
            for (Group group : groups) {
                Thread.sleep(interval / groups.size());
                group.members[at % members].restarts = true;
            }
            if (at % 10 == 9) {
                System.err.println(at + 1 + " of " + restarts + " restarted");
            }
        }
        Thread.sleep(away + 100);
        for (Group group : groups) {
            group.settle("end");
        }
        groups.forEach(Group::end);
        measures = false;
        ends = true;
        for (Group group : groups) {
            for (Member member : group.members) {
                member.join();
            }
        }
        producer.join();
        watch.join();
        for (Group group : groups) {
            System.out.println(group.told());
        }
    }

    /** One record for each partition in every round. */
    private static void produce() {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "linger.ms", 1);
        try (var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            long last = now();
            while (!ends) {
                for (int at = 0; at < partitions; at++) {
                    producer.send(new ProducerRecord<>(topic, at, null, new byte[100]));
                }
                Thread.sleep(Math.max(1, last + EVERY_MS - now()));
                if (measures) {
                    wrote.accumulateAndGet(now() - last, Math::max);
                }
                last = now();
            }
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** How long this machine, or this process, stood still. */
    private static void watch() {
        while (!ends) {
            long before = System.nanoTime();
            try {
                Thread.sleep(5);
            } catch (InterruptedException error) {
                return;
            }
            if (measures) {
                stalled.accumulateAndGet((System.nanoTime() - before) / 1_000_000 - 5, Math::max);
            }
        }
    }

    private static long now() {
        return System.currentTimeMillis();
    }

    /** What is known of a partition within a group. */
    private static final class Place {
        long next = -1, readAt, pause, unownedSince, unowned;
        Member owner;

        synchronized void read(ConsumerRecord<?, ?> record, long now, Group group) {
            if (record.offset() < next) {
                group.again.incrementAndGet();
                return;
            }
            if (measures && next >= 0) {
                group.skipped.addAndGet(record.offset() - next);
                pause = Math.max(pause, now - Math.max(readAt, record.timestamp()));
            }
            next = record.offset() + 1;
            readAt = now;
        }

        synchronized void given(Member member, Group group) {
            if (owner != null && owner != member) {
                group.doubled.incrementAndGet();
            }
            owner = member;
            if (measures) {
                group.moved.incrementAndGet();
                unowned = Math.max(unowned, unownedSince == 0 ? 0 : now() - unownedSince);
            }
        }

        synchronized void takenFrom(Member member) {
            if (owner == member) {
                owner = null;
                unownedSince = now();
            }
        }
    }

    private static final class Group {
        final String name, protocol;
        final boolean isStatic;
        final Place[] places = new Place[partitions];
        final Member[] members = new Member[Rolling.members];
        final AtomicLong again = new AtomicLong(), skipped = new AtomicLong(), moved = new AtomicLong(), lost = new AtomicLong();
        final AtomicLong doubled = new AtomicLong(), errors = new AtomicLong();
        final List<Long> rejoins = new ArrayList<>();
        long began, ended;

        Group(String name, String protocol, boolean isStatic) {
            this.name = name;
            this.protocol = protocol;
            this.isStatic = isStatic;
            Arrays.setAll(places, at -> new Place());
            Arrays.setAll(members, at -> new Member(this, at));
        }

        void start() {
            for (Member member : members) {
                member.start();
            }
        }

        /** Until everybody has had the same share for a while, and reads. */
        void settle(String what) throws InterruptedException {
            long since = now(), until = since + PATIENCE_MS, shares = partitions / Rolling.members;
            while (now() < since + SETTLED_MS) {
                for (Member member : members) {
                    if (member.restarts || member.own || member.has.size() != shares) {
                        since = now();
                    }
                }
                if (now() > until) {
                    long[] has = Arrays.stream(members).mapToLong(member -> member.has.size()).toArray();
                    throw new IllegalStateException(name + " is not evenly shared at the " + what + ": " + Arrays.toString(has));
                }
                Thread.sleep(20);
            }
            ended = since;
        }

        void begin() {
            began = now();
            for (Place place : places) {
                synchronized (place) {
                    place.pause = place.unowned = place.unownedSince = 0;
                }
            }
            for (Member member : members) {
                member.pause = 0;
            }
            again.set(0);
        }

        void end() {
            for (Place place : places) {
                synchronized (place) {
                    place.pause = Math.max(place.pause, now() - place.readAt - EVERY_MS);
                }
            }
            for (Member member : members) {
                long last = member.gotAt;
                member.pause = Math.max(member.pause, last == 0 ? 0 : now() - last - EVERY_MS);
            }
        }

        String told() {
            StringBuilder told = new StringBuilder("{\"group\": \"" + name + "\"");
            put(told, "member_pause", Arrays.stream(members).map(member -> member.pause).toList());
            put(told, "partition_pause", Arrays.stream(places).map(place -> place.pause).toList());
            put(told, "unowned", Arrays.stream(places).map(place -> place.unowned).toList());
            put(told, "rejoin", rejoins);
            told.append(String.format(", \"seconds\": %.1f, \"moved\": %d, \"read_again\": %d, \"skipped\": %d, \"lost\": %d, \"owned_twice\": %d",
                (ended - began) / 1e3, moved.get(), again.get(), skipped.get(), lost.get(), doubled.get()));
            return told.append(String.format(", \"errors\": %d, \"process_stood_still\": %d, \"writer_gap\": %d}", errors.get(), stalled.get(), wrote.get()))
                .toString();
        }

        static void put(StringBuilder told, String name, List<Long> values) {
            List<Long> sorted = values.stream().sorted().toList();
            long worst = sorted.isEmpty() ? 0 : sorted.get(sorted.size() - 1), median = sorted.isEmpty() ? 0 : sorted.get(sorted.size() / 2);
            told.append(String.format(", \"%s_worst\": %d, \"%s_median\": %d", name, worst, name, median));
        }
    }

    private static final class Member extends Thread implements ConsumerRebalanceListener {
        final Group group;
        final int number;
        final Set<Integer> has = ConcurrentHashMap.newKeySet();
        volatile boolean restarts, own;
        // On the member's own thread only: it leaves by itself.
        boolean leaves;
        volatile long gotAt, pause;

        Member(Group group, int number) {
            this.group = group;
            this.number = number;
            setDaemon(true);
        }

        @Override
        public void run() {
            Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", group.name,
                "group.protocol", group.protocol, "auto.offset.reset", "earliest", "client.id", group.name + "-" + number));
            if (group.protocol.equals("classic")) {
                config.put("partition.assignment.strategy", List.of(CooperativeStickyAssignor.class));
            }
            if (group.isStatic) {
                config.put("group.instance.id", "instance-" + number);
            }
            try {
                while (!ends) {
                    life(config);
                    if (!ends) {
                        Thread.sleep(away);
                    }
                }
            } catch (Exception error) {
                group.errors.incrementAndGet();
                error.printStackTrace();
            }
        }

        void life(Map<String, Object> config) throws InterruptedException {
            leaves = false;
            try (var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                consumer.subscribe(List.of(topic), this);
                long subscribed = now();
                while (!ends && !restarts) {
                    ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                    if (!records.isEmpty()) {
                        got(records, subscribed);
                        Thread.sleep(PACE_MS);
                    }
                }
                own = true;
                gotAt = 0;
                restarts = false;
                leaves = true;
            }
            // A static member says nothing of what it has.
            has.forEach(at -> group.places[at].takenFrom(this));
            has.clear();
        }

        void got(ConsumerRecords<byte[], byte[]> records, long subscribed) {
            long now = now(), earliest = Long.MAX_VALUE;
            for (ConsumerRecord<byte[], byte[]> record : records) {
                group.places[record.partition()].read(record, now, group);
                earliest = Math.min(earliest, record.timestamp());
            }
            if (own) {
                synchronized (group.rejoins) {
                    group.rejoins.add(now - subscribed);
                }
            } else if (measures && gotAt > 0) {
                pause = Math.max(pause, now - Math.max(gotAt, earliest));
            }
            own = false;
            gotAt = now;
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> given) {
            for (TopicPartition one : given) {
                group.places[one.partition()].given(this, group);
                has.add(one.partition());
            }
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> taken) {
            for (TopicPartition one : taken) {
                has.remove(one.partition());
                group.places[one.partition()].takenFrom(this);
            }
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> taken) {
            // Who leaves during a rebalance is told that it has lost what it gives away.
            group.lost.addAndGet(measures && !leaves ? taken.size() : 0);
            onPartitionsRevoked(taken);
        }
    }
}
