/* librabbitmq, as an ordinary program in C uses it: messages with confirms, which are consumed and acknowledged; 500 connections that are closed in good order, of
 * which the server does not hang up first; as many logins that are refused, each with its reason. Arguments: URL, how many messages. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <amqp.h>
#include <amqp_tcp_socket.h>

enum { CLOSES = 500, REFUSED = 500, PREFETCH = 50, PATIENCE_S = 60, ACCESS_REFUSED = 403 };

static struct amqp_connection_info server;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void check(const char *what, amqp_rpc_reply_t reply) {
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION) fail(what, amqp_error_string2(reply.library_error));
    if (reply.reply_type != AMQP_RESPONSE_NORMAL) fail(what, "the server closes the connection or the channel");
}

static void check_status(const char *what, int status) {
    if (status != AMQP_STATUS_OK) fail(what, amqp_error_string2(status));
}

static amqp_connection_state_t connects(void) {
    amqp_connection_state_t connection = amqp_new_connection();
    amqp_socket_t *socket = amqp_tcp_socket_new(connection);
    if (socket == NULL) fail("a socket", "there is none");
    check_status("connect", amqp_socket_open(socket, server.host, server.port));
    struct timeval patience = {.tv_sec = PATIENCE_S};
    check_status("a time limit", amqp_set_rpc_timeout(connection, &patience));
    return connection;
}

static amqp_rpc_reply_t logs_in(amqp_connection_state_t connection, const char *password) {
    return amqp_login(connection, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, server.user, password);
}

static amqp_connection_state_t opens(void) {
    amqp_connection_state_t connection = connects();
    check("login", logs_in(connection, server.password));
    amqp_channel_open(connection, 1);
    check("channel", amqp_get_rpc_reply(connection));
    return connection;
}

/* What the other side has done with the connection: nothing, it is for the client to end it. */
static void check_open(const char *what, amqp_connection_state_t connection) {
    char byte;
    ssize_t got = recv(amqp_get_sockfd(connection), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got == 0) fail(what, "the server hangs up first");
    if (got < 0 && errno != EAGAIN) fail(what, strerror(errno));
}

static void closes(void) {
    for (int number = 0; number < CLOSES; number++) {
        amqp_connection_state_t connection = opens();
        check("close", amqp_connection_close(connection, AMQP_REPLY_SUCCESS));
        check_open("behind close-ok", connection);
        check_status("the end", amqp_destroy_connection(connection));
    }
}

static void is_refused(void) {
    for (int number = 0; number < REFUSED; number++) {
        amqp_connection_state_t connection = connects();
        amqp_rpc_reply_t reply = logs_in(connection, "another password");
        if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION) fail("a refused login", amqp_error_string2(reply.library_error));
        if (reply.reply_type != AMQP_RESPONSE_SERVER_EXCEPTION || reply.reply.id != AMQP_CONNECTION_CLOSE_METHOD) fail("a refused login", "it is let in");
        amqp_connection_close_t *told = reply.reply.decoded;
        if (told->reply_code != ACCESS_REFUSED) fail("a refused login", "it is told as something else");
        amqp_connection_close_ok_t agreed = {0};
        check_status("close-ok", amqp_send_method(connection, 0, AMQP_CONNECTION_CLOSE_OK_METHOD, &agreed));
        check_status("the end", amqp_destroy_connection(connection));
    }
}

static void publishes(amqp_connection_state_t connection, amqp_bytes_t queue, int count) {
    amqp_confirm_select(connection, 1);
    check("confirms", amqp_get_rpc_reply(connection));
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG, .delivery_mode = 2};
    for (int number = 0; number < count; number++) {
        char body[16];
        snprintf(body, sizeof body, "%d", number);
        check_status("publish", amqp_basic_publish(connection, 1, amqp_empty_bytes, queue, 0, 0, &properties, amqp_cstring_bytes(body)));
    }
    for (uint64_t confirmed = 0; confirmed < (uint64_t)count;) {
        amqp_frame_t frame;
        check_status("confirms", amqp_simple_wait_frame(connection, &frame));
        if (frame.frame_type != AMQP_FRAME_METHOD || frame.payload.method.id != AMQP_BASIC_ACK_METHOD) fail("confirms", "something else comes");
        confirmed = ((amqp_basic_ack_t *)frame.payload.method.decoded)->delivery_tag;
    }
    amqp_maybe_release_buffers(connection);
}

static void consumes(amqp_connection_state_t connection, amqp_bytes_t queue, int count) {
    amqp_basic_qos(connection, 1, 0, PREFETCH, 0);
    check("prefetch", amqp_get_rpc_reply(connection));
    amqp_basic_consume(connection, 1, queue, amqp_empty_bytes, 0, 0, 0, amqp_empty_table);
    check("consume", amqp_get_rpc_reply(connection));
    struct timeval patience = {.tv_sec = PATIENCE_S};
    for (int number = 0; number < count; number++) {
        amqp_envelope_t envelope;
        amqp_maybe_release_buffers(connection);
        check("deliver", amqp_consume_message(connection, &envelope, &patience, 0));
        char body[16];
        int length = snprintf(body, sizeof body, "%d", number);
        if (envelope.message.body.len != (size_t)length || memcmp(envelope.message.body.bytes, body, length) != 0) fail(body, "another message comes");
        check_status("acknowledge", amqp_basic_ack(connection, 1, envelope.delivery_tag, 0));
        amqp_destroy_envelope(&envelope);
    }
}

int main(int count_of_arguments, char **arguments) {
    if (count_of_arguments != 3 || amqp_parse_url(arguments[1], &server) != AMQP_STATUS_OK) fail("arguments", "a URL, and how many messages");
    int count = atoi(arguments[2]);
    closes();
    is_refused();
    amqp_connection_state_t connection = opens();
    amqp_queue_declare_ok_t *declared = amqp_queue_declare(connection, 1, amqp_empty_bytes, 0, 0, 1, 0, amqp_empty_table);
    check("declare", amqp_get_rpc_reply(connection));
    amqp_bytes_t queue = amqp_bytes_malloc_dup(declared->queue);
    publishes(connection, queue, count);
    consumes(connection, queue, count);
    amqp_bytes_free(queue);
    check("close", amqp_connection_close(connection, AMQP_REPLY_SUCCESS));
    check_status("the end", amqp_destroy_connection(connection));
    printf("%d messages\n", count);
}
