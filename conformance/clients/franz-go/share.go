package main

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// What clients/java/Share.java does, with franz-go: `share BOOTSTRAP GROUP TOPIC LOCK KIND NAME...`, members until SIGTERM.

type place struct {
	partition int32
	offset    int64
}

type member struct {
	name, kind string
	lock       time.Duration
	client     *kgo.Client
	random     *rand.Rand
	said       map[place]kgo.AckStatus
	mu         sync.Mutex
	failed     map[int32]error
}

func now() int64 { return time.Now().UnixMicro() }

func (m *member) line(format string, more ...any) {
	// One call to write for a line: members of a process share the output.
	os.Stdout.WriteString(m.name + " " + fmt.Sprintf(format, more...) + "\n")
}

func share(arguments []string) error {
	lock, err := strconv.Atoi(arguments[3])
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer cancel()
	failures := make(chan error)
	for _, name := range arguments[5:] {
		m := &member{name: name, kind: arguments[4], lock: time.Duration(lock) * time.Millisecond,
			random: rand.New(rand.NewSource(int64(len(name)) + now())), said: map[place]kgo.AckStatus{}, failed: map[int32]error{}}
		options := []kgo.Opt{kgo.SeedBrokers(arguments[0]), kgo.ShareGroup(arguments[1]), kgo.ConsumeTopics(arguments[2]), kgo.ClientID(name),
			kgo.ShareAckCallback(m.heard), kgo.ShareMaxRecords(50), kgo.FetchMaxWait(200 * time.Millisecond), kgo.RetryBackoffFn(func(int) time.Duration { return 100 * time.Millisecond })}
		if m.kind != "mixed" || m.random.Intn(2) == 0 {
			options = append(options, kgo.ShareMaxRecordsStrict())
		}
		if m.client, err = kgo.NewClient(options...); err != nil {
			return err
		}
		go func() { failures <- m.work(ctx) }()
	}
	for range arguments[5:] {
		if failure := <-failures; failure != nil {
			return failure
		}
	}
	return nil
}

func (m *member) heard(_ *kgo.Client, results kgo.ShareAckResults) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range results {
		if one.Err != nil {
			m.failed[one.Partition] = one.Err
		}
	}
}

func (m *member) work(ctx context.Context) error {
	for ctx.Err() == nil {
		began := now()
		fetches := m.client.PollRecords(ctx, 50)
		for _, failure := range fetches.Errors() {
			if ctx.Err() == nil {
				m.line("trouble %s", strings.ReplaceAll(failure.Err.Error(), "\n", " "))
			}
		}
		got := fetches.Records()
		for _, one := range got {
			m.line("got %d %d %d %d %d %s %s", one.Partition, one.Offset, one.DeliveryCount(), began, now(), one.Key, one.Value)
		}
		switch m.kind {
		case "mixed":
			m.judge(got)
		case "holds":
			m.hold(ctx, got)
		case "releases":
			m.all(got, kgo.AckRelease)
		case "rejects":
			m.all(got, kgo.AckReject)
		default:
			m.keys(got)
		}
	}
	leaving, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = m.client.LeaveGroupContext(leaving)
	m.client.CloseAllowingRebalance()
	m.line("left")
	return nil
}

// Says the same of all.
func (m *member) all(got []*kgo.Record, status kgo.AckStatus) {
	for _, one := range got {
		m.say(one, status)
	}
	m.flush()
}

// Keeps what it has until others may have it.
func (m *member) hold(ctx context.Context, got []*kgo.Record) {
	if len(got) > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(m.lock + 500*time.Millisecond):
		}
		m.all(got, kgo.AckRelease)
	}
}

func (m *member) judge(got []*kgo.Record) {
	var forgotten *kgo.Record
	for _, one := range got {
		number, dice := number(one), m.random.Intn(1000)
		switch {
		case number%101 == 13:
			m.say(one, kgo.AckRelease) // Nobody ever can do it.
		case dice < 1 && forgotten == nil:
			forgotten = one
		case dice < 850:
			m.say(one, kgo.AckAccept)
		case dice < 950:
			m.say(one, kgo.AckRelease)
		case dice < 970:
			m.say(one, kgo.AckReject)
		default:
			m.say(one, kgo.AckRenew)
			m.flush()
			m.say(one, kgo.AckAccept)
		}
	}
	m.flush()
	if forgotten != nil {
		m.line("forgets %d %d", forgotten.Partition, forgotten.Offset)
		time.Sleep(m.lock + time.Second)
		m.say(forgotten, kgo.AckAccept)
		m.flush()
	}
}

func (m *member) keys(got []*kgo.Record) {
	for _, one := range got {
		began := now()
		time.Sleep(time.Duration(m.random.Intn(3)) * time.Millisecond)
		m.line("worked %d %d %d %d %d %s %s", one.Partition, one.Offset, one.DeliveryCount(), began, now(), one.Key, one.Value)
		if m.kind == "keys-released" && m.random.Intn(10) == 0 {
			m.say(one, kgo.AckRelease)
		} else {
			m.say(one, kgo.AckAccept)
		}
	}
	m.flush()
}

func number(one *kgo.Record) int64 {
	number, err := strconv.ParseInt(string(one.Value), 10, 64)
	if err != nil {
		panic(err)
	}
	return number
}

func (m *member) say(one *kgo.Record, status kgo.AckStatus) {
	m.line("says %d %d %s %d", one.Partition, one.Offset, strings.ToUpper(status.String()), now())
	one.Ack(status)
	m.said[place{one.Partition, one.Offset}] = status
}

// The outcome is known by partition: one failure counts for all that was said of it.
func (m *member) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	err := m.client.FlushAcks(ctx)
	m.mu.Lock()
	defer m.mu.Unlock()
	for where, status := range m.said {
		failure := m.failed[where.partition]
		if err != nil {
			failure = err
		}
		outcome := fmt.Sprintf("%d %d %s %d", where.partition, where.offset, strings.ToUpper(status.String()), now())
		if failure != nil {
			m.line("failed %s %s", outcome, strings.ReplaceAll(failure.Error(), " ", "_"))
		} else {
			m.line("done %s", outcome)
		}
	}
	clear(m.said)
	clear(m.failed)
}
