package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// group BOOTSTRAP GROUP TOPIC COUNT CLIENT_ID: a member of a group that reads until it has COUNT records and no more come for a second. Prints
// them as "PARTITION OFFSET".
func group(arguments []string) error {
	count, err := strconv.Atoi(arguments[3])
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(arguments[0]), kgo.ConsumerGroup(arguments[1]), kgo.ConsumeTopics(arguments[2]),
		kgo.ClientID(arguments[4]), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit())
	if err != nil {
		return err
	}
	defer client.Close()
	deadline := time.Now().Add(40 * time.Second)
	idle := time.Now()
	for seen := 0; time.Now().Before(deadline) && (seen < count || time.Since(idle) < time.Second); {
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		fetches := client.PollFetches(ctx)
		cancel()
		for _, r := range fetches.Records() {
			fmt.Println(r.Partition, r.Offset)
			seen++
			idle = time.Now()
		}
	}
	return client.CommitUncommittedOffsets(context.Background())
}
