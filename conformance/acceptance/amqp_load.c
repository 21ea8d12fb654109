/* A client of AMQP 0-9-1 that costs as little as one can: frames written and read by hand, for measuring where libraries are the bound.
 *
 *   amqp_load publish HOST:PORT EXCHANGE KEY COUNT BYTES [delay MIN MAX | priority LEVELS] [from FIRST] [expire MS]
 *       Publishes COUNT persistent messages with confirms, WINDOW of them open at most. A body begins with its number, when it was sent
 *       (CLOCK_MONOTONIC, ns) and its delay (ms), 8 bytes each. Ends when all are confirmed, or when the connection does.
 *   amqp_load consume HOST:PORT QUEUE COUNT IDLE_S
 *       Takes messages until COUNT different ones have come or none for IDLE_S; connects again whenever the connection breaks. Judges by
 *       what the bodies say when each was due.
 *   amqp_load hold HOST:PORT QUEUE CONSUMERS EACH SECONDS
 *       Consumers with EACH messages unacknowledged; then each acknowledges one of its own at random for every one it gets, for SECONDS.
 * Prints one line of JSON. Numbers on the wire are big-endian (AMQP 0-9-1, 4.2). */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { WINDOW = 5000, FRAME_MAX = 131072, IN = 1 << 20, OUT = 1 << 16 };

typedef struct {
  int fd;
  uint8_t *in, *out;
  size_t from, to, used;
} Wire;

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static uint64_t get(const uint8_t *at, int bytes) {
  uint64_t value = 0;
  while (bytes--) value = value << 8 | *at++;
  return value;
}
static uint64_t random_state = 88172645463325252u;
static uint64_t next_random(void) {
  random_state ^= random_state << 13, random_state ^= random_state >> 7, random_state ^= random_state << 17;
  return random_state;
}
static void fail(const char *what) {
  fprintf(stderr, "amqp_load: %s (%s)\n", what, strerror(errno));
  exit(1);
}

static int flush(Wire *w) {
  for (size_t at = 0; at < w->used;) {
    ssize_t sent = send(w->fd, w->out + at, w->used - at, MSG_NOSIGNAL);
    if (sent <= 0) return -1;
    at += (size_t)sent;
  }
  w->used = 0;
  return 0;
}
static void put(Wire *w, uint64_t value, int bytes) {
  while (bytes--) w->out[w->used++] = (uint8_t)(value >> 8 * bytes);
}
static void put_text(Wire *w, const char *text) {
  size_t length = strlen(text);
  put(w, length, 1), memcpy(w->out + w->used, text, length), w->used += length;
}
static size_t begin(Wire *w, int kind, int channel) {
  put(w, (uint64_t)kind, 1), put(w, (uint64_t)channel, 2), put(w, 0, 4);
  return w->used;
}
static size_t method(Wire *w, int channel, int class, int id) {
  size_t at = begin(w, 1, channel);
  put(w, (uint64_t)class, 2), put(w, (uint64_t)id, 2);
  return at;
}
static void end(Wire *w, size_t at) {
  size_t length = w->used - at, after;
  after = w->used, w->used = at - 4, put(w, length, 4), w->used = after, put(w, 0xCE, 1);
}

/* The next frame's payload; its kind and channel. NULL: the connection is gone, or nothing came in time. */
static const uint8_t *frame(Wire *w, int *kind, int *channel, size_t *length, int wait_ms) {
  for (;;) {
    size_t have = w->to - w->from;
    if (have >= 7) {
      size_t body = get(w->in + w->from + 3, 4);
      if (have >= body + 8) {
        const uint8_t *at = w->in + w->from;
        *kind = at[0], *channel = (int)get(at + 1, 2), *length = body;
        w->from += body + 8;
        return at + 7;
      }
    }
    if (w->from) memmove(w->in, w->in + w->from, have), w->from = 0, w->to = have;
    struct pollfd wait = {.fd = w->fd, .events = POLLIN};
    if (wait_ms >= 0 && poll(&wait, 1, wait_ms) == 0) { errno = EAGAIN; return NULL; }
    ssize_t got = recv(w->fd, w->in + w->to, IN - w->to, 0);
    if (got <= 0) { errno = ECONNRESET; return NULL; }
    w->to += (size_t)got;
  }
}
/* Waits for a method. */
static const uint8_t *expect(Wire *w, int class, int id) {
  int kind, channel;
  size_t length;
  const uint8_t *at;
  while ((at = frame(w, &kind, &channel, &length, 60000)))
    if (kind == 1 && get(at, 2) == (uint64_t)class && get(at + 2, 2) == (uint64_t)id) return at;
  return NULL;
}

static int open_wire(Wire *w, const char *address, int channels) {
  char host[64];
  const char *colon = strrchr(address, ':');
  snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(colon + 1))};
  inet_pton(AF_INET, host, &to.sin_addr);
  if (!w->in) w->in = malloc(IN), w->out = malloc(2 * OUT);
  w->from = w->to = w->used = 0;
  w->fd = socket(AF_INET, SOCK_STREAM, 0);
  int one = 1;
  setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (connect(w->fd, (struct sockaddr *)&to, sizeof to)) return close(w->fd), -1;
  memcpy(w->out, "AMQP\0\0\x09\x01", 8), w->used = 8;
  size_t at;
  if (flush(w) || !expect(w, 10, 10)) return close(w->fd), -1;
  at = method(w, 0, 10, 11), put(w, 0, 4), put_text(w, "PLAIN"), put(w, 12, 4);
  memcpy(w->out + w->used, "\0guest\0guest", 12), w->used += 12, put_text(w, "en_US"), end(w, at);
  if (flush(w) || !expect(w, 10, 30)) return close(w->fd), -1;
  at = method(w, 0, 10, 31), put(w, 2047, 2), put(w, FRAME_MAX, 4), put(w, 0, 2), end(w, at);
  at = method(w, 0, 10, 40), put_text(w, "/"), put(w, 0, 2), end(w, at);
  if (flush(w) || !expect(w, 10, 41)) return close(w->fd), -1;
  for (int channel = 1; channel <= channels; channel++) {
    at = method(w, channel, 20, 10), put(w, 0, 1), end(w, at);
    if (flush(w) || !expect(w, 20, 11)) return close(w->fd), -1;
  }
  return 0;
}
static int set_prefetch(Wire *w, int channel, uint64_t prefetch) {
  size_t at = method(w, channel, 60, 10);
  put(w, 0, 4), put(w, prefetch, 2), put(w, 0, 1), end(w, at);
  return flush(w) || !expect(w, 60, 11) ? -1 : 0;
}
static int consume(Wire *w, int channel, const char *queue) {
  size_t at;
  char tag[16];
  snprintf(tag, sizeof tag, "c%d", channel);
  at = method(w, channel, 60, 20), put(w, 0, 2), put_text(w, queue), put_text(w, tag), put(w, 0, 1), put(w, 0, 4), end(w, at);
  return flush(w);
}

/* Publishing. */
static struct { uint64_t confirmed, refused; int ended; pthread_mutex_t lock; pthread_cond_t moved; } confirms = {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER};

static void *read_confirms(void *arg) {
  Wire *w = arg;
  int kind, channel;
  size_t length;
  const uint8_t *at;
  uint8_t *open = calloc(1, 1u << 26); /* a bit a message */
  uint64_t next = 1;
  while ((at = frame(w, &kind, &channel, &length, -1))) {
    if (kind != 1 || get(at, 2) != 60) continue;
    uint64_t id = get(at + 2, 2), tag = get(at + 4, 8);
    if (id != 80 && id != 120) continue;
    uint64_t first = at[12] & 1 ? next : tag;
    for (uint64_t one = first; one <= tag; one++) open[one / 8] |= (uint8_t)(1 << one % 8);
    while (open[next / 8] >> next % 8 & 1) next++;
    pthread_mutex_lock(&confirms.lock);
    confirms.refused += id == 120 ? tag - first + 1 : 0;
    confirms.confirmed = next - 1;
    pthread_cond_signal(&confirms.moved);
    pthread_mutex_unlock(&confirms.lock);
  }
  pthread_mutex_lock(&confirms.lock);
  confirms.ended = 1;
  pthread_cond_signal(&confirms.moved);
  pthread_mutex_unlock(&confirms.lock);
  return NULL;
}

static int publish(int argc, char **argv) {
  const char *exchange = argv[3], *key = argv[4];
  uint64_t count = strtoull(argv[5], 0, 10), bytes = strtoull(argv[6], 0, 10), first = 0, delay_min = 0, delay_max = 0, levels = 0;
  const char *expiration = NULL;
  for (int at = 7; at < argc; at++) {
    if (!strcmp(argv[at], "delay")) delay_min = strtoull(argv[at + 1], 0, 10), delay_max = strtoull(argv[at + 2], 0, 10);
    if (!strcmp(argv[at], "priority")) levels = strtoull(argv[at + 1], 0, 10);
    if (!strcmp(argv[at], "from")) first = strtoull(argv[at + 1], 0, 10);
    if (!strcmp(argv[at], "expire")) expiration = argv[at + 1];
  }
  random_state += first * 7919 + 1;
  Wire w = {0};
  if (open_wire(&w, argv[2], 1)) fail("no connection");
  size_t at = method(&w, 1, 85, 10);
  put(&w, 0, 1), end(&w, at);
  if (flush(&w) || !expect(&w, 85, 11)) fail("no confirms");
  Wire reads = {.fd = w.fd, .in = malloc(IN), .from = 0, .to = w.to - w.from};
  memcpy(reads.in, w.in + w.from, reads.to);
  pthread_t reader;
  pthread_create(&reader, 0, read_confirms, &reads);
  uint64_t began = now_ns(), sent = 0;
  uint8_t body[65536] = {0};
  bytes = bytes < 24 ? 24 : bytes > sizeof body ? sizeof body : bytes;
  for (; sent < count; sent++) {
    if (sent % 64 == 0) {
      pthread_mutex_lock(&confirms.lock);
      int full = sent >= confirms.confirmed + WINDOW;
      pthread_mutex_unlock(&confirms.lock);
      if (full && flush(&w)) break;
      pthread_mutex_lock(&confirms.lock);
      while (!confirms.ended && sent >= confirms.confirmed + WINDOW) pthread_cond_wait(&confirms.moved, &confirms.lock);
      int ended = confirms.ended;
      pthread_mutex_unlock(&confirms.lock);
      if (ended) break;
    }
    if (w.used > OUT - 1024 && flush(&w)) break;
    uint64_t delay = delay_max ? delay_min + next_random() % (delay_max - delay_min + 1) : 0;
    at = method(&w, 1, 60, 40), put(&w, 0, 2), put_text(&w, exchange), put_text(&w, key), put(&w, 0, 1), end(&w, at);
    at = begin(&w, 2, 1), put(&w, 60, 2), put(&w, 0, 2), put(&w, bytes, 8);
    put(&w, 0x1000u | (delay ? 0x2000u : 0) | (levels ? 0x0800u : 0) | (expiration ? 0x0100u : 0), 2);
    if (delay) put(&w, 13, 4), put_text(&w, "x-delay"), put(&w, 'I', 1), put(&w, delay, 4);
    put(&w, 2, 1);
    if (levels) put(&w, next_random() % levels, 1);
    if (expiration) put_text(&w, expiration);
    end(&w, at);
    uint64_t head[3] = {first + sent, now_ns(), delay};
    memcpy(body, head, sizeof head);
    at = begin(&w, 3, 1), memcpy(w.out + w.used, body, bytes), w.used += bytes, end(&w, at);
  }
  flush(&w);
  pthread_mutex_lock(&confirms.lock);
  while (!confirms.ended && confirms.confirmed < sent) pthread_cond_wait(&confirms.moved, &confirms.lock);
  printf("{\"sent\": %lu, \"confirmed\": %lu, \"refused\": %lu, \"seconds\": %.3f}\n", sent, confirms.confirmed, confirms.refused, (double)(now_ns() - began) / 1e9);
  return 0;
}

/* Consuming: what was due when. */
static int take(char **argv) {
  uint64_t count = strtoull(argv[4], 0, 10), distinct = 0, got = 0, early = 0, late = 0, buckets[8] = {0}, idle = strtoull(argv[5], 0, 10);
  double latest = 0, earliest = 1e9;
  uint8_t *seen = calloc(1, count / 8 + 1);
  Wire w = {0};
  uint64_t last = now_ns(), ready = 0, unacked = 0, tag = 0;
  int connected = 0, connections = 0;
  while (distinct < count && now_ns() - last < idle * 1000000000u) {
    if (!connected) {
      if (open_wire(&w, argv[2], 1) || set_prefetch(&w, 1, 2000) || consume(&w, 1, argv[3])) { usleep(20000); continue; }
      connected = 1, connections++, ready = now_ns(), unacked = 0;
    }
    int kind, channel;
    size_t length;
    const uint8_t *at = frame(&w, &kind, &channel, &length, unacked ? 5 : 200);
    if (at && kind == 1 && get(at, 2) == 60 && get(at + 2, 2) == 60) tag = get(at + 5 + at[4], 8);
    if (at && kind == 3) {
      uint64_t head[3], here = now_ns();
      memcpy(head, at, sizeof head);
      last = here, got++, unacked++;
      /* Nobody can get a message while there is no broker. */
      double due = (double)head[1] / 1e6 + (double)head[2], after = (double)here / 1e6 - due;
      double since = here > ready && (double)ready / 1e6 > due ? (double)(here - ready) / 1e6 : after;
      if (head[0] < count && !(seen[head[0] / 8] >> head[0] % 8 & 1)) seen[head[0] / 8] |= (uint8_t)(1 << head[0] % 8), distinct++;
      if (after < 0) early++;
      if (since > 1000) late++;
      if (since > latest) latest = since;
      if (after < earliest) earliest = after;
      static const double bounds[] = {1, 5, 20, 50, 100, 300, 1000};
      int bucket = 0;
      while (bucket < 7 && since > bounds[bucket]) bucket++;
      buckets[bucket]++;
    }
    if (connected && ((!at && errno == EAGAIN && unacked) || unacked >= 500)) {
      size_t from = method(&w, 1, 60, 80);
      put(&w, tag, 8), put(&w, 1, 1), end(&w, from), unacked = 0;
      if (flush(&w)) close(w.fd), connected = 0;
    } else if (!at && errno != EAGAIN) close(w.fd), connected = 0;
  }
  printf("{\"distinct\": %lu, \"got\": %lu, \"early\": %lu, \"late\": %lu, \"latest_ms\": %.1f, \"earliest_ms\": %.3f, \"connections\": %d, "
         "\"up_to_ms\": {\"1\": %lu, \"5\": %lu, \"20\": %lu, \"50\": %lu, \"100\": %lu, \"300\": %lu, \"1000\": %lu, \"more\": %lu}}\n",
         distinct, got, early, late, latest, earliest, connections, buckets[0], buckets[1], buckets[2], buckets[3], buckets[4], buckets[5], buckets[6], buckets[7]);
  return distinct == count ? 0 : 2;
}

/* Many unacknowledged messages, acknowledged in random order. */
static int hold(char **argv) {
  int consumers = atoi(argv[4]);
  uint64_t each = strtoull(argv[5], 0, 10), seconds = strtoull(argv[6], 0, 10), held_all = 0, acked = 0, *held = calloc((size_t)consumers + 1, 8), began = now_ns();
  uint64_t **tags = calloc((size_t)consumers + 1, sizeof *tags), full_at = 0, first_at = 0, delivered = 0, levels_fallen = 0;
  Wire w = {0};
  if (open_wire(&w, argv[2], consumers)) fail("no connection");
  for (int one = 1; one <= consumers; one++) {
    tags[one] = malloc((each + 1) * 8);
    if (set_prefetch(&w, one, each)) fail("no channel");
  }
  for (int one = 1; one <= consumers; one++)
    if (consume(&w, one, argv[3])) fail("no consumer");
  uint64_t last = now_ns();
  int last_priority = 255;
  for (;;) {
    int kind, channel;
    size_t length;
    uint64_t here = now_ns();
    if (full_at && here - full_at > seconds * 1000000000u) break;
    if (!full_at && here - last > 5000000000u) full_at = here; /* nothing more comes */
    const uint8_t *at = frame(&w, &kind, &channel, &length, w.used ? 0 : 5);
    if (!at) {
      if (errno != EAGAIN) fail("connection lost");
      if (w.used && flush(&w)) fail("connection lost");
      continue;
    }
    if (kind == 2 && length > 16) {
      int flags = (int)get(at + 12, 2), place = 14 + !!(flags & 0x1000);
      if (flags & 0x0800) levels_fallen += at[place] > last_priority, last_priority = at[place];
    }
    if (kind != 1 || get(at, 2) != 60 || get(at + 2, 2) != 60) continue;
    last = here;
    if (!first_at) first_at = here;
    uint64_t tag = get(at + 5 + at[4], 8);
    tags[channel][held[channel]++] = tag, held_all++;
    if (!full_at && held_all == each * (uint64_t)consumers) full_at = here;
    if (full_at) delivered++;
    while (full_at && held[channel] >= each) {
      uint64_t which = next_random() % held[channel], gone = tags[channel][which];
      tags[channel][which] = tags[channel][--held[channel]];
      size_t from = method(&w, channel, 60, 80);
      put(&w, gone, 8), put(&w, 0, 1), end(&w, from), acked++;
      if (w.used > OUT - 64 && flush(&w)) fail("connection lost");
    }
    if (full_at && here == full_at)
      for (int one = 1; one <= consumers; one++)
        for (int more = 0; more < 100 && held[one]; more++) {
          uint64_t which = next_random() % held[one], gone = tags[one][which];
          tags[one][which] = tags[one][--held[one]];
          size_t from = method(&w, one, 60, 80);
          put(&w, gone, 8), put(&w, 0, 1), end(&w, from), acked++;
          if (w.used > OUT - 64 && flush(&w)) fail("connection lost");
        }
  }
  double took = (double)(now_ns() - full_at) / 1e9;
  printf("{\"first_ms\": %.1f, \"held\": %lu, \"fill_per_s\": %.0f, \"delivered\": %lu, \"acked\": %lu, \"per_s\": %.0f, \"out_of_order\": %lu}\n", (double)(first_at - began) / 1e6,
         held_all - delivered, full_at > first_at ? (double)(held_all - delivered) / ((double)(full_at - first_at) / 1e9) : 0, delivered, acked,
         took > 0 ? (double)delivered / took : 0, levels_fallen);
  return 0;
}

int main(int argc, char **argv) {
  if (argc >= 7 && !strcmp(argv[1], "publish")) return publish(argc, argv);
  if (argc == 6 && !strcmp(argv[1], "consume")) return take(argv);
  if (argc == 7 && !strcmp(argv[1], "hold")) return hold(argv);
  fprintf(stderr, "see the head of amqp_load.c\n");
  return 2;
}
