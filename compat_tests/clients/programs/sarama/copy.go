package main

import (
	"context"
	"errors"
	"log"
	"time"

	"github.com/IBM/sarama"

	"kbroker/clients/lines"
)

const (
	retries = 3 // so that a transaction that cannot go on ends soon
	moment  = 50 * time.Millisecond
)

// copyRecords goes on with a new producer where one ends in an error: this ends what it has left open.
func copyRecords(request *lines.Request) (lines.Answer, error) {
	ctx, cancel := context.WithTimeout(background, request.Timeout())
	defer cancel()
	for {
		copied, err := copyWithProducer(ctx, request)
		if err == nil || ctx.Err() != nil {
			return lines.Answer{"copied": copied}, err
		}
		log.Print(err)
		time.Sleep(moment)
	}
}

func copyWithProducer(ctx context.Context, request *lines.Request) (int64, error) {
	config := config()
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Net.MaxOpenRequests = 1
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Retry.Max = retries
	config.Producer.Transaction.Retry.Max = retries
	config.Producer.Transaction.ID = request.Group
	producer, err := sarama.NewSyncProducer(addresses, config)
	if err != nil {
		return 0, err
	}
	defer func() { _ = producer.Close() }()
	copied, err := committed(request)
	if err != nil {
		return 0, err
	}
	consumer, err := sarama.NewConsumer(addresses, config)
	if err != nil {
		return copied, err
	}
	defer func() { _ = consumer.Close() }()
	for transactions := 0; copied < int64(request.Count); transactions++ {
		messages, err := some(ctx, consumer, request.Topics[0], copied)
		if err != nil {
			return copied, err
		}
		commit := transactions%3 != 1
		end := messages[len(messages)-1].Offset + 1
		if err := transact(producer, request, messages, end, commit); err != nil {
			return copied, err
		}
		if commit {
			copied = end
		}
	}
	return copied, nil
}

func committed(request *lines.Request) (int64, error) {
	var offset int64
	_, err := with(func(_ sarama.Client, admin sarama.ClusterAdmin) (lines.Answer, error) {
		found, err := admin.ListConsumerGroupOffsets(request.Group, map[string][]int32{request.Topics[0]: {0}})
		if err == nil {
			offset = max(found.GetBlock(request.Topics[0], 0).Offset, 0)
		}
		return nil, err
	})
	return offset, err
}

func some(
	ctx context.Context, consumer sarama.Consumer, topic string, offset int64,
) ([]*sarama.ConsumerMessage, error) {
	reader, err := consumer.ConsumePartition(topic, 0, offset)
	if err != nil {
		return nil, err
	}
	defer func() { _ = reader.Close() }()
	messages := []*sarama.ConsumerMessage{}
	for len(messages) < lines.Transaction {
		select {
		case message := <-reader.Messages():
			messages = append(messages, message)
		case err := <-reader.Errors():
			return nil, err
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), errors.New("nothing to copy"))
		}
	}
	return messages, nil
}

func transact(
	producer sarama.SyncProducer, request *lines.Request, messages []*sarama.ConsumerMessage, end int64, commit bool,
) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	copies := make([]*sarama.ProducerMessage, 0, len(messages))
	for _, message := range messages {
		copies = append(copies, &sarama.ProducerMessage{
			Topic: request.Topics[1], Value: sarama.ByteEncoder(message.Value),
		})
	}
	if err := producer.SendMessages(copies); err != nil {
		return err
	}
	place := &sarama.PartitionOffsetMetadata{Partition: 0, Offset: end, LeaderEpoch: -1}
	offsets := map[string][]*sarama.PartitionOffsetMetadata{request.Topics[0]: {place}}
	if err := producer.AddOffsetsToTxn(offsets, request.Group); err != nil {
		return err
	}
	if commit {
		return producer.CommitTxn()
	}
	return producer.AbortTxn()
}
