// franz-go. `produce BOOTSTRAP COUNT TOPIC=CODEC ...` and `consume BOOTSTRAP COUNT TOPIC ...`; `share` is in share.go, `group` in group.go.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func produce(bootstrap string, count int64, target string) error {
	topic, codec, _ := strings.Cut(target, "=")
	client, err := kgo.NewClient(append(login(), kgo.SeedBrokers(bootstrap), kgo.ProducerBatchCompression(codecs[codec]),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(5*time.Millisecond))...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	// Who is not let in hears it now; records would wait.
	if err := client.Ping(ctx); err != nil {
		return err
	}
	failures := make(chan error, 1)
	for number := range count {
		r := record(topic, number)
		r.Timestamp = time.UnixMilli(firstTimestamp + number)
		client.Produce(ctx, r, func(_ *kgo.Record, err error) {
			if err != nil {
				select {
				case failures <- err:
				default:
				}
			}
		})
	}
	if err := client.Flush(ctx); err != nil {
		return err
	}
	select {
	case err := <-failures:
		return err
	default:
		return nil
	}
}

func consume(bootstrap string, count int64, topic string) error {
	from := map[int32]kgo.Offset{}
	for partition := range partitions(topic) {
		from[int32(partition)] = kgo.NewOffset().At(0)
	}
	client, err := kgo.NewClient(append(login(), kgo.SeedBrokers(bootstrap), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	next := make([]int64, partitions(topic))
	for seen := int64(0); seen < count; {
		fetches := client.PollFetches(ctx)
		if failures := fetches.Errors(); len(failures) > 0 {
			return fmt.Errorf("%d of %d came: %w", seen, count, failures[0].Err)
		}
		for _, r := range fetches.Records() {
			if r.Offset != next[r.Partition] {
				return fmt.Errorf("partition %d: offset %d instead of %d", r.Partition, r.Offset, next[r.Partition])
			}
			if text := difference(r, r.Offset*partitions(topic)+int64(r.Partition)); text != "" {
				return fmt.Errorf("%s", text)
			}
			next[r.Partition]++
			seen++
		}
	}
	return nil
}

func main() {
	if run := map[string]func([]string) error{"share": share, "group": group}[os.Args[1]]; run != nil {
		if err := run(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	count, err := strconv.ParseInt(os.Args[3], 10, 64)
	if err != nil {
		panic(err)
	}
	work := map[string]func(string, int64, string) error{"produce": produce, "consume": consume}[os.Args[1]]
	for _, target := range os.Args[4:] {
		topic, _, _ := strings.Cut(target, "=")
		if err := work(os.Args[2], count, target); err != nil {
			fmt.Printf("FAIL %s %v\n", topic, err)
		} else {
			fmt.Printf("ok %s\n", topic)
		}
	}
}
