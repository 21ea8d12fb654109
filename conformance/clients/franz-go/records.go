package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The records of records.py, for franz-go.

func isText(topic string) bool { return strings.Contains(topic, "-text-") }

func partitions(topic string) int64 {
	if isText(topic) {
		return 1
	}
	return 3
}

const firstTimestamp = 1_700_000_000_000

func record(topic string, number int64) *kgo.Record {
	digest := sha256.Sum256(fmt.Appendf(nil, "%s/%d", topic, number))
	r := &kgo.Record{Topic: topic, Partition: int32(number % partitions(topic)), Key: fmt.Appendf(nil, "key-%d", number%977)}
	if isText(topic) {
		r.Value = []byte(strings.Repeat(hex.EncodeToString(digest[:]), int(1+number%9)))
		r.Headers = []kgo.RecordHeader{{Key: "from", Value: []byte("text")}}
		return r
	}
	if number%11 == 3 {
		r.Key = nil
	}
	if number%101 != 7 || r.Key == nil {
		r.Value = bytes.Repeat(digest[:], 65)[:binary.BigEndian.Uint16(digest[:2])%2049]
	}
	r.Headers = []kgo.RecordHeader{
		{Key: "number", Value: fmt.Appendf(nil, "%d", number)}, {Key: "twice", Value: []byte("a")},
		{Key: "twice", Value: digest[:4]}, {Key: "empty", Value: []byte{}},
	}
	return r
}

func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// difference names what of a fetched record is not as written, or nothing.
func difference(got *kgo.Record, number int64) string {
	want := record(got.Topic, number)
	switch {
	case !same(got.Key, want.Key):
		return fmt.Sprintf("key of %d", number)
	case !same(got.Value, want.Value):
		return fmt.Sprintf("value of %d", number)
	case len(got.Headers) != len(want.Headers):
		return fmt.Sprintf("headers of %d: %v", number, got.Headers)
	case !isText(got.Topic) && got.Timestamp.UnixMilli() != firstTimestamp+number:
		return fmt.Sprintf("timestamp of %d", number)
	}
	for i, header := range want.Headers {
		if got.Headers[i].Key != header.Key || !same(got.Headers[i].Value, header.Value) {
			return fmt.Sprintf("header %s of %d: %v", header.Key, number, got.Headers[i])
		}
	}
	return ""
}
