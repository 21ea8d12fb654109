"""Frames, headers, versions, bodies that end early or announce too much."""

import struct

from client import APIS, NAMES, Closed
from . import case


def head(key, version, correlation=7, client=b"\0\4peer", flexible=False):
    return struct.pack(">hhi", key, version, correlation) + client + (b"\0" if flexible else b"")


@case
def api_key_unknown(t):
    t.frame("api key 999", head(999, 0))


@case
def api_key_negative(t):
    t.frame("api key -1", head(-1, 0))


@case
def api_key_of_brokers_only(t):
    t.frame("UpdateMetadata", head(6, 7) + bytes(32))


@case
def version_above_range(t):
    t.frame("Metadata v99", head(3, 99) + bytes(16))


@case
def version_below_range(t):
    t.frame("Fetch v0", head(1, 0) + bytes(16))


@case
def version_negative(t):
    t.frame("Metadata v-1", head(3, -1) + bytes(16))


@case
def version_of_produce_before_3(t):
    t.frame("Produce v2", head(0, 2) + struct.pack(">hii", 1, 1000, 0))


@case
def api_versions_of_every_version(t):
    for version in range(5):
        body = {"client_software_name": "peer", "client_software_version": "1"} if version >= 3 else {}
        t.ask("ApiVersions", version, body, only=("error_code",), drop=("api_keys", "supported_features", "finalized_features"))


@case
def api_versions_of_an_unknown_version(t):
    t.connection.frame(t.connection.header(18, 99, True) + b"\5peer\2001\0")
    answer = t.connection.response("ApiVersions", 0)
    t.note(answer=answer)


@case
def api_versions_ranges(t):
    answer = t.quiet("ApiVersions", 4, {"client_software_name": "peer", "client_software_version": "1"})
    ranges = {one["api_key"]: f"{one['min_version']}-{one['max_version']}" for one in answer["api_keys"]}
    t.note(ranges={NAMES[key]: ranges[key] for key in sorted(ranges) if key in NAMES})


@case
def api_versions_features(t):
    answer = t.quiet("ApiVersions", 4, {"client_software_name": "peer", "client_software_version": "1"})
    t.note(features={one["name"]: one["max_version_level"] for one in answer["finalized_features"]})


@case
def api_versions_with_an_empty_client_name(t):
    t.ask("ApiVersions", 3, {"client_software_name": "", "client_software_version": "1"})


@case
def api_versions_with_blanks_in_the_client_name(t):
    t.ask("ApiVersions", 3, {"client_software_name": "a b", "client_software_version": "1"})


@case
def api_versions_ending_early(t):
    t.frame("ApiVersions v3 without a body", head(18, 3, flexible=True))


@case
def frame_of_length_0(t):
    t.frame("length 0", b"")


@case
def frame_of_negative_length(t):
    t.frame("length -1", b"", length=-1)


@case
def frame_of_the_smallest_length(t):
    t.frame("length -2147483648", b"", length=-(1 << 31))


@case
def frame_too_large(t):
    t.frame("length 104857601", b"", length=104_857_601)


@case
def frame_of_the_largest_length(t):
    t.frame("length 2147483647", b"", length=(1 << 31) - 1)


@case
def frame_of_another_protocol(t):
    t.raw("an HTTP request", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")


@case
def header_of_1_byte(t):
    t.frame("one byte", b"\0")


@case
def header_without_correlation_id(t):
    t.frame("key and version", struct.pack(">hh", 18, 0))


@case
def header_without_client_id(t):
    t.frame("no client id", struct.pack(">hhi", 3, 1, 7))


@case
def header_with_a_null_client_id(t):
    t.connection.frame(t.connection.header(3, 1, False, client=None) + struct.pack(">i", 0))
    t.note(topics=t.connection.response("Metadata", 1)["topics"])


@case
def header_with_client_id_too_long(t):
    t.frame("client id beyond the end", head(3, 1, client=b"\x7f\xffpeer"))


@case
def header_with_negative_client_id_length(t):
    t.frame("client id of length -2", head(3, 1, client=b"\xff\xfe") + struct.pack(">i", 0))


@case
def header_with_tags(t):
    t.connection.correlation = 7
    t.connection.frame(struct.pack(">hhi", 3, 12, 7) + b"\0\4peer" + b"\1\x63\2ab" + b"\1\1\0\0")
    t.note(topics=t.connection.response("Metadata", 12)["topics"])


@case
def header_with_tags_beyond_the_end(t):
    t.frame("tag of 127 bytes", head(3, 12) + b"\1\x63\x7fab")


@case
def body_ending_early(t):
    t.frame("Metadata v1 with half a count", head(3, 1) + b"\0\0")


@case
def body_ending_in_a_string(t):
    t.frame("Metadata v1 with half a name", head(3, 1) + struct.pack(">ih", 1, 20) + b"half")


@case
def body_missing(t):
    t.frame("CreateTopics v2 without a body", head(19, 2))


@case
def body_with_bytes_behind_it(t):
    t.connection.frame(t.connection.header(3, 1, False) + struct.pack(">i", 0) + b"more")
    t.note(topics=t.connection.response("Metadata", 1)["topics"])


@case
def body_with_unknown_tags(t):
    t.connection.frame(t.connection.header(3, 12, True) + b"\1\1\0" + b"\1\x63\2ab")
    t.note(topics=t.connection.response("Metadata", 12)["topics"])


@case
def body_with_tags_out_of_order(t):
    t.frame("tags 99 and 98", head(3, 12, flexible=True) + b"\1\1\0" + b"\2\x63\0\x62\0")


@case
def array_of_negative_length(t):
    t.frame("CreateTopics v2 with -5 topics", head(19, 2) + struct.pack(">i", -5))


@case
def array_null_where_it_may_not_be(t):
    t.frame("CreateTopics v2 with null topics", head(19, 2) + struct.pack(">iib", -1, 1000, 0))


@case
def array_of_a_huge_announced_length(t):
    t.frame("Metadata v1 with 2147483647 topics", head(3, 1) + struct.pack(">i", (1 << 31) - 1))


@case
def array_compact_of_a_huge_announced_length(t):
    t.frame("Metadata v12 with 4294967294 topics", head(3, 12, flexible=True) + b"\xff\xff\xff\xff\x0f")


@case
def array_of_arrays_of_huge_lengths(t):
    t.frame("Fetch v4 with huge counts", head(1, 4) + struct.pack(">iiiib", -1, 0, 0, 1000, 0)
            + struct.pack(">ih", 1 << 30, 1) + b"t" + struct.pack(">i", 1 << 30))


@case
def varint_too_long(t):
    t.frame("Metadata v12 with a varint of 6 bytes", head(3, 12, flexible=True) + b"\xff\xff\xff\xff\xff\x01")


@case
def string_of_negative_length(t):
    t.frame("Metadata v1 with a name of length -7", head(3, 1) + struct.pack(">ih", 1, -7))


@case
def string_null_where_it_may_not_be(t):
    t.frame("FindCoordinator v0 with a null key", head(10, 0) + struct.pack(">h", -1))


@case
def string_that_is_not_utf_8(t):
    t.connection.frame(t.connection.header(3, 1, False) + struct.pack(">ih", 1, 2) + b"\xc3\x28")
    try:
        t.note(error_code=t.connection.response("Metadata", 1)["topics"][0]["error_code"])
    except Closed:
        t.note(connection="closed")


@case
def records_of_a_huge_announced_length(t):
    topic = t.unique("topic").encode()
    body = struct.pack(">hhii", -1, 1, 1000, 1) + struct.pack(">h", len(topic)) + topic
    t.frame("Produce v3 with 2 GB of records", head(0, 3) + body + struct.pack(">iii", 1, 0, (1 << 31) - 1))


@case
def boolean_that_is_2(t):
    t.connection.frame(t.connection.header(3, 4, False) + struct.pack(">ib", 0, 2))
    t.note(topics=t.connection.response("Metadata", 4)["topics"])


@case
def requests_in_one_write_are_answered_in_order(t):
    link, api = t.connection, APIS["Metadata"]
    one = struct.pack(">i", 0)
    sent = b""
    for _ in range(5):
        body = link.header(api.key, 1, False) + one
        sent += struct.pack(">i", len(body)) + body
    link.raw(sent)
    t.note(correlations=[struct.unpack(">i", link.receive()[:4])[0] for _ in range(5)])


@case
def request_in_single_bytes(t):
    link = t.connection
    body = link.header(3, 1, False) + struct.pack(">i", 0)
    for byte in struct.pack(">i", len(body)) + body:
        link.raw(bytes([byte]))
    t.note(topics=link.response("Metadata", 1)["topics"])


def unserved(t, what, key, version, body, flexible=False):
    t.frame(what, head(key, version, flexible=flexible) + body)


@case
def api_of_authentication(t):
    unserved(t, "SaslHandshake v1", 17, 1, b"\0\5PLAIN")


@case
def api_of_transactions(t):
    unserved(t, "EndTxn v1", 26, 1, struct.pack(">h2sqh?", 2, b"tx", 1, 0, True))


@case
def api_of_quotas(t):
    unserved(t, "DescribeClientQuotas v0", 48, 0, struct.pack(">i?", 0, False))


@case
def api_of_new_consumer_groups(t):
    unserved(t, "ConsumerGroupDescribe v0", 69, 0, b"\2\2g\0\0", flexible=True)


@case
def connection_that_says_nothing(t):
    t.raw("nothing", b"")


@case
def frame_in_two_halves(t):
    link = t.connection
    body = link.header(3, 1, False) + struct.pack(">i", 0)
    whole = struct.pack(">i", len(body)) + body
    link.raw(whole[:9])
    link.raw(whole[9:])
    t.note(topics=link.response("Metadata", 1)["topics"])


@case
def requests_of_which_one_is_bad(t):
    good = head(3, 1) + struct.pack(">i", 0)
    bad = head(999, 0)
    t.connection.correlation = 7
    t.connection.raw(b"".join(struct.pack(">i", len(one)) + one for one in (good, bad, good)))
    try:
        t.note(topics=t.connection.response("Metadata", 1)["topics"])
    except Closed:
        t.note(connection="closed")
