// RabbitMQ's own client for Go, as an ordinary program uses it: messages with confirms of their own, some of them large, to an exchange; two
// consumers that acknowledge several at a time, return the first ones and get them again; what nobody gets comes back; an error ends its
// channel and nothing else; 500 connections are closed and none is told of an error; 500 logins are refused, each with its reason. Arguments: URL,
// how many messages.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	large      = 300_000
	everyLarge = 100
	together   = 20
	returned   = 5
	patience   = 60 * time.Second
)

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func body(number int) []byte {
	text := []byte(strconv.Itoa(number) + " ")
	if number%everyLarge == 0 {
		return append(text, bytes.Repeat([]byte{byte(number)}, large)...)
	}
	return text
}

func publish(channel *amqp.Channel, exchange string, count int) {
	check(channel.Confirm(false))
	var outcomes []*amqp.DeferredConfirmation
	for number := range count {
		message := amqp.Publishing{
			DeliveryMode: amqp.Persistent,
			MessageId:    strconv.Itoa(number),
			Headers:      amqp.Table{"number": int32(number), "nested": amqp.Table{"deep": []any{"a", int64(1) << 40}}},
			Body:         body(number),
		}
		outcomes = append(outcomes, must(channel.PublishWithDeferredConfirm(exchange, "any.key", false, false, message)))
	}
	limit, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	for number, outcome := range outcomes {
		if !must(outcome.WaitContext(limit)) {
			check(fmt.Errorf("message %d was not taken", number))
		}
	}
}

// Takes messages until all have been acknowledged; how often each was, and in which order those came that were not returned.
func consume(connection *amqp.Connection, queue string, count int) {
	var mutex sync.Mutex
	seen, done := map[int]int{}, make(chan struct{})
	returns := 0
	for range 2 {
		channel := must(connection.Channel())
		check(channel.Qos(2*together, 0, false))
		messages := must(channel.Consume(queue, "", false, false, false, false, nil))
		go func() {
			unacknowledged, last := 0, -1
			for message := range messages {
				number := must(strconv.Atoi(message.MessageId))
				if !bytes.Equal(message.Body, body(number)) || message.Headers["number"] != int32(number) {
					check(fmt.Errorf("message %d is not as it was", number))
				}
				mutex.Lock()
				giveBack := !message.Redelivered && returns < returned
				if giveBack {
					returns++
				} else {
					seen[number]++
				}
				left := count - len(seen)
				mutex.Unlock()
				if giveBack {
					check(message.Nack(false, true))
					continue
				}
				if number < last && !message.Redelivered {
					check(fmt.Errorf("message %d came after %d", number, last))
				}
				if !message.Redelivered {
					last = number
				}
				unacknowledged++
				if unacknowledged == together || left < 4*together {
					check(message.Ack(true))
					unacknowledged = 0
				}
				if left == 0 {
					close(done)
					return
				}
			}
		}()
	}
	select {
	case <-done:
	case <-time.After(patience):
		check(fmt.Errorf("only %d of %d messages came", len(seen), count))
	}
	for number, times := range seen {
		if times != 1 {
			check(fmt.Errorf("message %d was acknowledged %d times", number, times))
		}
	}
}

func returnsAndErrors(connection *amqp.Connection) {
	channel := must(connection.Channel())
	back := channel.NotifyReturn(make(chan amqp.Return, 1))
	check(channel.Publish("", "a queue that is not there", true, false, amqp.Publishing{Body: []byte("lost")}))
	select {
	case message := <-back:
		if message.ReplyCode != amqp.NoRoute || string(message.Body) != "lost" {
			check(fmt.Errorf("%d came back with %q", message.ReplyCode, message.Body))
		}
	case <-time.After(patience):
		check(errors.New("nothing came back"))
	}
	_, err := channel.QueueDeclarePassive("a queue that is not there", true, false, false, false, nil)
	var reason *amqp.Error
	if !errors.As(err, &reason) || reason.Code != amqp.NotFound {
		check(fmt.Errorf("%v instead of 404", err))
	}
	check(must(connection.Channel()).Close())
}

// Connections that are closed in good order: nobody is told of an error.
func closes(url string, count int) {
	for number := range count {
		connection := must(amqp.Dial(url))
		must(connection.Channel())
		told := connection.NotifyClose(make(chan *amqp.Error, 1))
		if err := connection.Close(); err != nil {
			check(fmt.Errorf("close %d: %w", number, err))
		}
		if reason, some := <-told; some && reason != nil {
			check(fmt.Errorf("close %d was told as an error: %v", number, reason))
		}
	}
}

// Logins with another password: each is told why, and none finds its connection reset.
func refusals(url string, count int) {
	wrong := must(amqp.ParseURI(url))
	wrong.Password = "another password"
	for number := range count {
		if _, err := amqp.Dial(wrong.String()); !errors.Is(err, amqp.ErrCredentials) {
			check(fmt.Errorf("login %d: %v instead of a refusal", number, err))
		}
	}
}

func main() {
	closes(os.Args[1], 500)
	refusals(os.Args[1], 500)
	connection := must(amqp.Dial(os.Args[1]))
	count := must(strconv.Atoi(os.Args[2]))
	channel := must(connection.Channel())
	name := fmt.Sprintf("go-%d", time.Now().UnixNano())
	check(channel.ExchangeDeclare(name, "topic", true, false, false, false, nil))
	must(channel.QueueDeclare(name, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}))
	check(channel.QueueBind(name, "any.#", name, false, nil))
	publish(channel, name, count)
	consume(connection, name, count)
	returnsAndErrors(connection)
	if left := must(must(connection.Channel()).QueueDelete(name, false, false, false)); left != 0 {
		check(fmt.Errorf("%d messages are left", left))
	}
	check(connection.Close())
	fmt.Printf("%d messages\n", count)
}
