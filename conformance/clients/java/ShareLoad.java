import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of a share group, threads of one process, that accept each record until so many are accepted and the broker has confirmed
 * it; prints the time from the first record to the last confirmation. Arguments: bootstrap, group, topic, members, records, acquire mode.
 */
public final class ShareLoad {
    public static void main(String[] arguments) throws Exception {
        int members = Integer.parseInt(arguments[3]);
        long wanted = Long.parseLong(arguments[4]);
        AtomicLong got = new AtomicLong(), accepted = new AtomicLong(), failed = new AtomicLong(), first = new AtomicLong(), last = new AtomicLong();
        AtomicLong cpuAtFirst = new AtomicLong();
        Thread[] threads = new Thread[members];
        for (int at = 0; at < members; at++) {
            Map<String, Object> config = Map.of("bootstrap.servers", arguments[0], "group.id", arguments[1],
                "share.acknowledgement.mode", "explicit", "share.acquire.mode", arguments[5]);
            threads[at] = new Thread(() -> {
                try (var consumer = new KafkaShareConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                    consumer.setAcknowledgementCommitCallback((offsets, error) -> {
                        long count = offsets.values().stream().mapToLong(java.util.Set::size).sum();
                        (error == null ? accepted : failed).addAndGet(count);
                        last.accumulateAndGet(System.nanoTime(), Math::max);
                    });
                    consumer.subscribe(List.of(arguments[2]));
                    while (accepted.get() < wanted) {
                        var records = consumer.poll(Duration.ofMillis(100));
                        if (!records.isEmpty() && first.compareAndSet(0, System.nanoTime())) {
                            cpuAtFirst.set(cpu());
                        }
                        for (ConsumerRecord<byte[], byte[]> one : records) {
                            consumer.acknowledge(one, AcknowledgeType.ACCEPT);
                        }
                        got.addAndGet(records.count());
                    }
                }
            });
            threads[at].start();
        }
        while (accepted.get() < wanted) {
            Thread.sleep(1);
        }
        double seconds = (last.get() - first.get()) / 1e9, used = (cpu() - cpuAtFirst.get()) / 1e9;
        System.out.printf("{\"records\": %d, \"delivered\": %d, \"failed\": %d, \"seconds\": %.3f, \"client_cpu_s\": %.3f}%n", accepted.get(),
            got.get(), failed.get(), seconds, used);
        System.out.flush();
        // What the broker does for members that leave is not measured.
        System.in.read();
        for (Thread each : threads) {
            each.join();
        }
    }

    private static long cpu() {
        return ((com.sun.management.OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }
}
