/* A light client for measurements: librdkafka without anything around it.
 *
 *   load produce BOOTSTRAP TOPIC PARTITIONS MEGABYTES [SETTING=VALUE...]   1 KiB random payloads, as fast as they go
 *   load consume BOOTSTRAP TOPIC PARTITIONS MEGABYTES [SETTING=VALUE...]
 *   load latency BOOTSTRAP TOPIC PARTITIONS SECONDS RATE [SETTING=VALUE...] publish latency from the moment a record was due
 *
 * Build: cc -O2 -o load load.c -lrdkafka. Prints one line of JSON. */
#include <librdkafka/rdkafka.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define PAYLOAD 1024
#define POOL (1 << 22)

static uint64_t failed, acknowledged;
static double *latencies;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static double cpu(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return u.ru_utime.tv_sec + u.ru_stime.tv_sec + (u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void delivered(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque) {
    (void)rk, (void)opaque;
    if (m->err) {
        if (!failed++) fprintf(stderr, "not delivered: %s\n", rd_kafka_err2str(m->err));
        return;
    }
    if (latencies) {
        double due;
        memcpy(&due, m->payload, sizeof due);
        latencies[acknowledged] = now() - due;
    }
    acknowledged++;
}

static rd_kafka_t *client(rd_kafka_type_t type, const char *bootstrap, int argc, char **argv) {
    char error[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "bootstrap.servers", bootstrap, error, sizeof error);
    rd_kafka_conf_set_dr_msg_cb(conf, type == RD_KAFKA_PRODUCER ? delivered : NULL);
    for (int i = 0; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        *value++ = 0;
        if (rd_kafka_conf_set(conf, argv[i], value, error, sizeof error)) {
            fprintf(stderr, "%s\n", error);
            exit(2);
        }
    }
    rd_kafka_t *rk = rd_kafka_new(type, conf, error, sizeof error);
    if (!rk) {
        fprintf(stderr, "%s\n", error);
        exit(2);
    }
    return rk;
}

static void send_one(rd_kafka_t *rk, const char *topic, int partition, const void *payload, int flags) {
    while (rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(partition), RD_KAFKA_V_MSGFLAGS(flags),
                             RD_KAFKA_V_VALUE((void *)payload, PAYLOAD), RD_KAFKA_V_END))
        rd_kafka_poll(rk, 10);
}

static int by_value(const void *a, const void *b) {
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

int main(int argc, char **argv) {
    if (argc < 6) return 2;
    const char *what = argv[1], *topic = argv[3];
    int partitions = atoi(argv[4]);
    long amount = atol(argv[5]);
    char *pool = malloc(POOL + PAYLOAD);
    uint64_t state = 88172645463325252ull;
    for (int i = 0; i < POOL + PAYLOAD; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        pool[i] = (char)(state >> 24);
    }
    double started = now(), cpu_started = cpu();
    if (!strcmp(what, "produce")) {
        uint64_t count = (uint64_t)amount * 1000000 / PAYLOAD;
        rd_kafka_t *rk = client(RD_KAFKA_PRODUCER, argv[2], argc - 6, argv + 6);
        for (uint64_t i = 0; i < count; i++) {
            send_one(rk, topic, i / 8 % partitions, pool + i * 977 % POOL, 0);
            if (i % 256 == 0) rd_kafka_poll(rk, 0);
        }
        rd_kafka_flush(rk, 120000);
        double seconds = now() - started;
        printf("{\"seconds\": %.3f, \"mb_per_s\": %.1f, \"records\": %lu, \"failed\": %lu, \"client_cpu\": %.2f}\n", seconds,
               acknowledged * PAYLOAD / seconds / 1e6, acknowledged, failed, cpu() - cpu_started);
        return failed || acknowledged != count;
    }
    if (!strcmp(what, "consume")) {
        uint64_t count = (uint64_t)amount * 1000000 / PAYLOAD, bytes = 0, seen = 0;
        rd_kafka_t *rk = client(RD_KAFKA_CONSUMER, argv[2], argc - 6, argv + 6);
        rd_kafka_topic_partition_list_t *all = rd_kafka_topic_partition_list_new(partitions);
        for (int p = 0; p < partitions; p++) rd_kafka_topic_partition_list_add(all, topic, p)->offset = RD_KAFKA_OFFSET_BEGINNING;
        rd_kafka_assign(rk, all);
        rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(rk);
        static rd_kafka_message_t *batch[10000];
        while (seen < count) {
            ssize_t got = rd_kafka_consume_batch_queue(queue, 10000, batch, 10000);
            if (got <= 0) break;
            for (ssize_t i = 0; i < got; i++) {
                if (!batch[i]->err) seen++, bytes += batch[i]->len;
                rd_kafka_message_destroy(batch[i]);
            }
        }
        double seconds = now() - started;
        printf("{\"seconds\": %.3f, \"mb_per_s\": %.1f, \"records\": %lu, \"client_cpu\": %.2f}\n", seconds, bytes / seconds / 1e6, seen,
               cpu() - cpu_started);
        fflush(stdout);
        _exit(seen < count);
    }
    long rate = atol(argv[6]), count = amount * rate;
    latencies = calloc(count, sizeof *latencies);
    rd_kafka_t *rk = client(RD_KAFKA_PRODUCER, argv[2], argc - 7, argv + 7);
    char payload[PAYLOAD];
    memcpy(payload, pool, PAYLOAD);
    double begin = now() + 1;
    for (long i = 0; i < count; i++) {
        double due = begin + (double)i / rate, left;
        while ((left = due - now()) > 0) {
            struct timespec t = {0, (long)(left < 0.0005 ? left * 1e9 : 400000)};
            nanosleep(&t, NULL);
            rd_kafka_poll(rk, 0);
        }
        memcpy(payload, &due, sizeof due);
        send_one(rk, topic, i % partitions, payload, RD_KAFKA_MSG_F_COPY);
        rd_kafka_poll(rk, 0);
    }
    rd_kafka_flush(rk, 60000);
    qsort(latencies, acknowledged, sizeof *latencies, by_value);
#define P(q) (latencies[(uint64_t)(acknowledged * (q))] * 1e3)
    printf("{\"records\": %lu, \"failed\": %lu, \"p50_ms\": %.3f, \"p95_ms\": %.3f, \"p99_ms\": %.3f, \"p999_ms\": %.3f, \"max_ms\": %.3f}\n",
           acknowledged, failed, P(0.5), P(0.95), P(0.99), P(0.999), latencies[acknowledged - 1] * 1e3);
    return failed || acknowledged != (uint64_t)count;
}
