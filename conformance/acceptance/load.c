/* A light client for measurements: librdkafka without anything around it.
 *
 *   load produce BOOTSTRAP TOPIC PARTITIONS MEGABYTES [SETTING=VALUE...]   1 KiB random payloads, as fast as they go
 *   load consume BOOTSTRAP TOPIC PARTITIONS MEGABYTES [SETTING=VALUE...]
 *   load latency BOOTSTRAP TOPIC PARTITIONS SECONDS RATE [SETTING=VALUE...] publish latency from the moment a record was due
 *   load follow  BOOTSTRAP TOPIC PARTITIONS SECONDS [SETTING=VALUE...]      reads from the end on for some seconds
 *   load fill    BOOTSTRAP TOPIC PARTITIONS MEGABYTES PRODUCERS [SETTING=VALUE...] one idempotent producer after the other
 *   load yardstick FOLDER                                                   sync writes of 4 KiB and TCP round trips
 *
 * Build: cc -O2 -o load load.c -lrdkafka. Prints one line of JSON. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <librdkafka/rdkafka.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAYLOAD 1024
#define POOL (1 << 22)

static volatile uint64_t failed, acknowledged;
/* From the moment a record was due, and from the moment it was handed to the library. */
static double *latencies, *since_sent;

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

/* Processor seconds of the thread of this process that has used most. */
static double busiest_thread(void) {
    double most = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks && (task = readdir(tasks));) {
        char path[300], text[1024];
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", task->d_name);
        FILE *stat = task->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (!stat) continue;
        text[fread(text, 1, sizeof text - 1, stat)] = 0;
        fclose(stat);
        /* The name ends with the last bracket; times are the 12th and 13th field behind it. */
        char *rest = strrchr(text, ')');
        unsigned long user, system;
        if (rest && sscanf(rest + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) == 2) {
            double used = (double)(user + system) / sysconf(_SC_CLK_TCK);
            if (used > most) most = used;
        }
    }
    if (tasks) closedir(tasks);
    return most;
}

static void delivered(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque) {
    (void)rk, (void)opaque;
    if (m->err) {
        if (!failed++) fprintf(stderr, "not delivered: %s\n", rd_kafka_err2str(m->err));
        return;
    }
    if (latencies) {
        double times[2], received = now();
        memcpy(times, m->payload, sizeof times);
        latencies[acknowledged] = received - times[0];
        since_sent[acknowledged] = received - times[1];
    }
    acknowledged++;
}

static rd_kafka_t *client(rd_kafka_type_t type, const char *bootstrap, int argc, char **argv) {
    char error[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "bootstrap.servers", bootstrap, error, sizeof error);
    if (type == RD_KAFKA_PRODUCER) rd_kafka_conf_set_dr_msg_cb(conf, delivered);
    for (int i = 0; i < argc; i++) {
        char *name = strdup(argv[i]), *value = strchr(name, '=');
        if (!value || (*value = 0, rd_kafka_conf_set(conf, name, value + 1, error, sizeof error))) {
            fprintf(stderr, "%s: %s\n", argv[i], value ? error : "SETTING=VALUE expected");
            exit(2);
        }
        free(name);
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
                             RD_KAFKA_V_VALUE((void *)payload, PAYLOAD), RD_KAFKA_V_END)) {
        if (latencies) usleep(500);
        else rd_kafka_poll(rk, 10);
    }
}

static volatile int ending;

/* Takes each answer the moment it comes. */
static void *poll_for_answers(void *rk) {
    while (!ending) rd_kafka_poll(rk, 100);
    return NULL;
}

static int by_value(const void *a, const void *b) {
    double d = *(const double *)a - *(const double *)b;
    return (d > 0) - (d < 0);
}

static void print_quantiles(const char *name, double *values, int count, const char *end) {
    qsort(values, count, sizeof *values, by_value);
    printf("\"%s_p50_ms\": %.3f, \"%s_p99_ms\": %.3f%s", name, values[count / 2] * 1e3, name, values[count * 99 / 100] * 1e3, end);
}

static int fail(const char *what) {
    perror(what);
    return 2;
}

/* What the machine itself takes: overwrites of 4 KiB with O_DIRECT and O_DSYNC, round trips of 64 bytes, both back to back and
 * with a pause of 2 ms, after which processors have to wake up. */
static int yardstick(const char *folder) {
    enum { WRITES = 1000, TRIPS = 10000, PACED = 1000, PAUSE_US = 2000, BLOCK = 4096, SPAN = 1 << 24 };
    static double times[TRIPS];
    char path[4096], *block = aligned_alloc(BLOCK, SPAN);
    memset(block, 7, SPAN);
    snprintf(path, sizeof path, "%s/yardstick", folder);
    int file = open(path, O_CREAT | O_RDWR | O_DIRECT | O_DSYNC, 0600);
    if (file < 0 || pwrite(file, block, SPAN, 0) != SPAN) return fail(path);
    printf("{");
    for (int paced = 0; paced < 2; paced++) {
        int count = paced ? PACED : WRITES;
        for (int i = 0; i < count; i++) {
            if (paced) usleep(PAUSE_US);
            double began = now();
            if (pwrite(file, block, BLOCK, (off_t)i * BLOCK % SPAN) != BLOCK) return fail(path);
            times[i] = now() - began;
        }
        print_quantiles(paced ? "paced_write" : "write", times, count, ", ");
    }
    close(file);
    unlink(path);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (bind(listener, (void *)&address, length) || listen(listener, 1) || getsockname(listener, (void *)&address, &length))
        return fail("listen");
    char bytes[64] = {0};
    fflush(stdout);
    if (fork() == 0) {
        int peer = accept(listener, NULL, NULL);
        setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        while (recv(peer, bytes, sizeof bytes, MSG_WAITALL) == sizeof bytes && send(peer, bytes, sizeof bytes, 0) > 0) {}
        _exit(0);
    }
    int stream = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(stream, (void *)&address, length)) return fail("connect");
    setsockopt(stream, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    for (int paced = 0; paced < 2; paced++) {
        int count = paced ? PACED : TRIPS;
        for (int i = 0; i < count; i++) {
            if (paced) usleep(PAUSE_US);
            double began = now();
            if (send(stream, bytes, sizeof bytes, 0) < 0 || recv(stream, bytes, sizeof bytes, MSG_WAITALL) <= 0) return fail("echo");
            times[i] = now() - began;
        }
        print_quantiles(paced ? "paced_trip" : "trip", times, count, paced ? "}\n" : ", ");
    }
    close(stream);
    wait(NULL);
    return 0;
}

static int fill(const char *bootstrap, const char *topic, int partitions, long megabytes, int producers, int argc, char **argv,
                const char *pool) {
    uint64_t each = (uint64_t)megabytes * 1000000 / PAYLOAD / producers;
    double started = now();
    for (int p = 0; p < producers; p++) {
        rd_kafka_t *rk = client(RD_KAFKA_PRODUCER, bootstrap, argc, argv);
        for (uint64_t i = 0; i < each; i++) {
            send_one(rk, topic, p % partitions, pool + (i * 977 + p) % POOL, 0);
            if (i % 256 == 0) rd_kafka_poll(rk, 0);
        }
        rd_kafka_flush(rk, 120000);
        rd_kafka_destroy(rk);
    }
    double seconds = now() - started;
    printf("{\"seconds\": %.1f, \"mb_per_s\": %.1f, \"records\": %lu, \"failed\": %lu}\n", seconds,
           acknowledged * PAYLOAD / seconds / 1e6, acknowledged, failed);
    return failed || acknowledged != each * producers;
}

/* The longest write of a broker that does nothing else: a chunk each millisecond into blocks that were allocated and never written,
 * with O_DIRECT, and a flush beside it ten times a second. */
static volatile int flushed_file;
static double longest_flush;

static void *flush_beside(void *_) {
    for (; !ending; usleep(100000)) {
        double began = now();
        fdatasync(flushed_file);
        double took = now() - began;
        if (took > longest_flush) longest_flush = took;
    }
    return _;
}

static int null_writer(const char *folder, int seconds, int chunk) {
    enum { BLOCK = 4096, SEGMENT = 256 << 20 };
    char path[4096], *block = aligned_alloc(BLOCK, chunk);
    memset(block, 7, chunk);
    double longest = 0, begin = now();
    pthread_t flusher = 0;
    long i = 0;
    for (int segment = 0; i < 1000L * seconds; segment++) {
        snprintf(path, sizeof path, "%s/null-%d", folder, segment);
        int file = open(path, O_CREAT | O_RDWR | O_DIRECT, 0600);
        if (file < 0 || posix_fallocate(file, 0, SEGMENT)) return fail(path);
        /* The one before stays open, in case it is being flushed. */
        flushed_file = file;
        if (!flusher) pthread_create(&flusher, NULL, flush_beside, NULL);
        for (off_t at = 0; at + chunk <= SEGMENT && i < 1000L * seconds; at += chunk, i++) {
            double pause = begin + i / 1e3 - now();
            if (pause > 0) usleep(pause * 1e6);
            double began = now();
            if (pwrite(file, block, chunk, at) != chunk) return fail(path);
            double took = now() - began;
            if (took > longest) longest = took;
        }
        unlink(path);
    }
    ending = 1;
    pthread_join(flusher, NULL);
    printf("{\"longest_write_ms\": %.3f, \"longest_flush_ms\": %.3f}\n", longest * 1e3, longest_flush * 1e3);
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "yardstick")) return yardstick(argv[2]);
    if (argc == 5 && !strcmp(argv[1], "null-writer")) return null_writer(argv[2], atoi(argv[3]), atoi(argv[4]));
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
        printf("{\"seconds\": %.3f, \"mb_per_s\": %.1f, \"records\": %lu, \"failed\": %lu, \"client_cpu\": %.2f, "
               "\"busiest_thread_cpu\": %.2f}\n", seconds, acknowledged * PAYLOAD / seconds / 1e6, acknowledged, failed,
               cpu() - cpu_started, busiest_thread());
        return failed || acknowledged != count;
    }
    if (!strcmp(what, "fill")) return fill(argv[2], topic, partitions, amount, atoi(argv[6]), argc - 7, argv + 7, pool);
    int follow = !strcmp(what, "follow");
    if (follow || !strcmp(what, "consume")) {
        uint64_t count = follow ? UINT64_MAX : (uint64_t)amount * 1000000 / PAYLOAD, bytes = 0, seen = 0;
        rd_kafka_t *rk = client(RD_KAFKA_CONSUMER, argv[2], argc - 6, argv + 6);
        rd_kafka_topic_partition_list_t *all = rd_kafka_topic_partition_list_new(partitions);
        for (int p = 0; p < partitions; p++) rd_kafka_topic_partition_list_add(all, topic, p)->offset = follow ? RD_KAFKA_OFFSET_END : RD_KAFKA_OFFSET_BEGINNING;
        rd_kafka_assign(rk, all);
        rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(rk);
        static rd_kafka_message_t *batch[10000];
        while (seen < count && !(follow && now() - started > amount)) {
            /* A batch that is not full is waited for: ask for no more than there is. */
            size_t most = count - seen < 10000 ? count - seen : 10000;
            ssize_t got = rd_kafka_consume_batch_queue(queue, follow ? 100 : 10000, batch, most);
            if (got <= 0 && !follow) break;
            for (ssize_t i = 0; i < got; i++) {
                if (!batch[i]->err) seen++, bytes += batch[i]->len;
                rd_kafka_message_destroy(batch[i]);
            }
        }
        double seconds = now() - started;
        printf("{\"seconds\": %.3f, \"mb_per_s\": %.1f, \"records\": %lu, \"client_cpu\": %.2f}\n", seconds, bytes / seconds / 1e6, seen,
               cpu() - cpu_started);
        fflush(stdout);
        _exit(!follow && seen < count);
    }
    long rate = atol(argv[6]), count = amount * rate;
    rd_kafka_t *rk = client(RD_KAFKA_PRODUCER, argv[2], argc - 7, argv + 7);
    /* Connections and metadata come first: their second does not belong to the records. */
    for (int p = 0; p < partitions; p++) send_one(rk, topic, p, pool, 0);
    rd_kafka_flush(rk, 60000);
    acknowledged = failed = 0;
    latencies = calloc(count, sizeof *latencies);
    since_sent = calloc(count, sizeof *since_sent);
    char payload[PAYLOAD];
    memcpy(payload, pool, PAYLOAD);
    double *late = calloc(count, sizeof *late), begin = now() + 1;
    /* By default timers may be 50 us late, which would count as the broker's. */
    if (prctl(PR_SET_TIMERSLACK, 1)) return fail("timer slack");
    pthread_t poller;
    pthread_create(&poller, NULL, poll_for_answers, rk);
    for (long i = 0; i < count; i++) {
        double due = begin + (double)i / rate;
        if (due > now()) {
            struct timespec t = {(time_t)due, (long)((due - (time_t)due) * 1e9)};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
        }
        double times[2] = {due, now()};
        late[i] = times[1] - due;
        memcpy(payload, times, sizeof times);
        send_one(rk, topic, (uint32_t)(i * 2654435761u) % partitions, payload, RD_KAFKA_MSG_F_COPY);
    }
    for (double until = now() + 60; acknowledged + failed < (uint64_t)count && now() < until;) usleep(10000);
    ending = 1;
    pthread_join(poller, NULL);
    qsort(latencies, acknowledged, sizeof *latencies, by_value);
#define P(q) (latencies[(uint64_t)(acknowledged * (q))] * 1e3)
    if (!acknowledged) return 1;
    printf("{\"records\": %lu, \"failed\": %lu, \"p50_ms\": %.3f, \"p95_ms\": %.3f, \"p99_ms\": %.3f, \"p999_ms\": %.3f, \"max_ms\": %.3f, ",
           acknowledged, failed, P(0.5), P(0.95), P(0.99), P(0.999), latencies[acknowledged - 1] * 1e3);
    /* How late the records were sent: the generator's own share. */
    print_quantiles("schedule_lag", late, count, ", ");
    print_quantiles("since_sent", since_sent, acknowledged, "}\n");
    return failed || acknowledged != (uint64_t)count;
}
