import java.io.PrintStream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Members of a share group that do with records what comes to mind, until SIGTERM, and say so line by line; conformance/share/events.py
 * reads the lines. Arguments: bootstrap, group, topic, lock duration in ms, kind of work, and a name for each member of this process.
 *
 * Kinds: `mixed` accepts, releases, rejects, renews and forgets; `keys` works on each record for a moment and accepts it, or with
 * `keys-released` sometimes releases it.
 */
public final class Share {
    private static final PrintStream OUT = System.out;
    private static volatile boolean ends;

    private final String name, kind;
    private final long lock;
    private final Random random;
    private final KafkaShareConsumer<String, String> consumer;
    /** What was said since something was last sent, and what was sent without waiting for the outcome. */
    private final Map<Place, String> said = new LinkedHashMap<>(), sent = new LinkedHashMap<>();
    private final Set<Place> renewed = new HashSet<>();

    private record Place(int partition, long offset) {
        Place(ConsumerRecord<?, ?> one) {
            this(one.partition(), one.offset());
        }
    }

    private Share(String[] arguments, String name) {
        this.name = name;
        lock = Long.parseLong(arguments[3]);
        kind = arguments[4];
        random = new Random(name.hashCode());
        Map<String, Object> config = Map.of("bootstrap.servers", arguments[0], "group.id", arguments[1], "client.id", name,
            "share.acknowledgement.mode", "explicit", "share.acquire.mode", random.nextBoolean() ? "record_limit" : "batch_optimized",
            "max.poll.records", kind.equals("mixed") ? 50 : 10, "reconnect.backoff.max.ms", 200, "fetch.max.wait.ms", 300);
        consumer = new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer());
        consumer.setAcknowledgementCommitCallback((offsets, error) -> offsets.forEach((where, each) -> {
            for (long offset : each) {
                confirm(new Place(where.partition(), offset), sent, error);
            }
        }));
        consumer.subscribe(List.of(arguments[2]));
    }

    public static void main(String[] arguments) throws Exception {
        List<String> names = List.of(arguments).subList(5, arguments.length);
        CountDownLatch left = new CountDownLatch(names.size());
        List<Share> members = new ArrayList<>();
        for (String name : names) {
            Share member = new Share(arguments, name);
            members.add(member);
            new Thread(() -> {
                try {
                    member.work();
                } catch (Throwable fatal) {
                    fatal.printStackTrace();
                    Runtime.getRuntime().halt(1);
                }
                left.countDown();
            }, name).start();
        }
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            ends = true;
            members.forEach(member -> member.consumer.wakeup());
            try {
                left.await();
            } catch (InterruptedException never) {
                Thread.currentThread().interrupt();
            }
        }));
        left.await();
    }

    private void work() throws InterruptedException {
        while (!ends) {
            try {
                long began = now();
                List<ConsumerRecord<String, String>> got = new ArrayList<>();
                sendsWithoutWaiting();
                consumer.poll(Duration.ofMillis(500)).forEach(got::add);
                if (!got.isEmpty()) {
                    tell(got, began);
                    if (kind.equals("mixed")) {
                        judge(got);
                    } else {
                        keys(got);
                    }
                }
            } catch (WakeupException end) {
                break;
            } catch (KafkaException failure) {
                line("trouble " + failure.toString().replace('\n', ' '));
            }
        }
        consumer.close(Duration.ofSeconds(5));
        line("left");
    }

    /** What was said and not committed goes with the next poll, or is sent now; a callback tells the outcome. */
    private void sendsWithoutWaiting() {
        sent.putAll(said);
        said.clear();
    }

    private void tell(List<ConsumerRecord<String, String>> got, long began) {
        StringBuilder lines = new StringBuilder();
        for (ConsumerRecord<String, String> one : got) {
            boolean again = renewed.contains(new Place(one));
            lines.append(String.format("%s %s %d %d %d %d %d %s %s%n", name, again ? "again" : "got", one.partition(), one.offset(),
                one.deliveryCount().orElse((short) 0), began, now(), one.key(), one.value()));
        }
        OUT.print(lines);
        OUT.flush();
    }

    private void judge(List<ConsumerRecord<String, String>> got) throws InterruptedException {
        ConsumerRecord<String, String> forgotten = null;
        for (ConsumerRecord<String, String> one : got) {
            long number = Long.parseLong(one.value());
            int dice = random.nextInt(1000);
            if (renewed.remove(new Place(one))) {
                say(one, AcknowledgeType.ACCEPT);
            } else if (number % 101 == 13) {
                say(one, AcknowledgeType.RELEASE); // Nobody ever can do it.
            } else if (dice < 1 && forgotten == null) {
                forgotten = one;
            } else {
                say(one, dice < 850 ? AcknowledgeType.ACCEPT : dice < 950 ? AcknowledgeType.RELEASE
                    : dice < 970 ? AcknowledgeType.REJECT : AcknowledgeType.RENEW);
            }
        }
        if (random.nextInt(4) == 0) {
            Thread.sleep(random.nextInt(50));
        }
        if (forgotten != null) {
            commit();
            line("forgets " + forgotten.partition() + " " + forgotten.offset());
            Thread.sleep(lock + 1000);
            say(forgotten, AcknowledgeType.ACCEPT);
            commit();
            return;
        }
        switch (random.nextInt(3)) {
            case 0 -> commit();
            case 1 -> {
                sendsWithoutWaiting();
                consumer.commitAsync();
            }
            default -> { }
        }
    }

    /** Somebody else who has a record of the same key meanwhile shows that keys are not ordered. */
    private void keys(List<ConsumerRecord<String, String>> got) throws InterruptedException {
        for (ConsumerRecord<String, String> one : got) {
            long began = now();
            Thread.sleep(random.nextInt(3));
            line(String.format("worked %d %d %d %d %d %s %s", one.partition(), one.offset(), one.deliveryCount().orElse((short) 0), began,
                now(), one.key(), one.value()));
            boolean releases = kind.equals("keys-released") && random.nextInt(10) == 0;
            say(one, releases ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
        }
        commit();
    }

    private void say(ConsumerRecord<String, String> one, AcknowledgeType type) {
        line("says " + one.partition() + " " + one.offset() + " " + type.name() + " " + now());
        try {
            consumer.acknowledge(one, type);
        } catch (IllegalStateException gone) {
            line("unsaid " + one.partition() + " " + one.offset() + " " + type.name() + " " + gone.getMessage());
            return;
        }
        if (type == AcknowledgeType.RENEW) {
            renewed.add(new Place(one));
        }
        said.put(new Place(one), type.name());
    }

    private void commit() {
        Map<TopicIdPartition, Optional<KafkaException>> outcome = consumer.commitSync(Duration.ofSeconds(20));
        Map<Integer, Optional<KafkaException>> by = new LinkedHashMap<>();
        outcome.forEach((where, error) -> by.put(where.partition(), error));
        for (Place place : List.copyOf(said.keySet())) {
            Optional<KafkaException> error = by.get(place.partition());
            if (error != null) {
                confirm(place, said, error.orElse(null));
            }
        }
        said.clear();
    }

    private void confirm(Place place, Map<Place, String> from, Exception error) {
        String type = from.remove(place);
        if (type == null) {
            return; // Told by commitSync already.
        }
        String where = place.partition() + " " + place.offset() + " " + type + " " + now();
        if (error != null) {
            renewed.remove(place);
            line("failed " + where + " " + error.getClass().getSimpleName());
        } else {
            line("done " + where);
        }
    }

    private void line(String text) {
        OUT.println(name + " " + text);
        OUT.flush();
    }

    /** Microseconds of the system's clock. */
    private static long now() {
        var at = java.time.Instant.now();
        return at.getEpochSecond() * 1_000_000 + at.getNano() / 1000;
    }
}
