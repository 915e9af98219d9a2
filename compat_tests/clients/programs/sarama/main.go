// sarama, as a program that program.py speaks with.
package main

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"kbroker/clients/lines"
)

var (
	addresses  = []string{os.Args[1]}
	background = context.Background()
	producers  = map[producerKey]sarama.SyncProducer{}
)

type producerKey struct {
	codec, acks        string
	idempotent, manual bool
}

func codeOf(err error) int {
	var known sarama.KError
	if errors.As(err, &known) {
		return int(known)
	}
	var failures sarama.ProducerErrors
	if errors.As(err, &failures) && len(failures) > 0 {
		return codeOf(failures[0].Err)
	}
	return -1
}

func config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.RefreshFrequency = lines.Metadata
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Heartbeat.Interval = lines.Heartbeat
	return config
}

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

var acks = map[string]sarama.RequiredAcks{"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll}

func producer(key producerKey) (sarama.SyncProducer, error) {
	if producer, ok := producers[key]; ok {
		return producer, nil
	}
	config := config()
	config.Producer.Compression = codecs[key.codec]
	config.Producer.RequiredAcks = acks[key.acks]
	config.Producer.Return.Successes = true
	config.Producer.MaxMessageBytes = lines.LargestRecord
	config.Producer.Flush.Frequency = 5 * time.Millisecond
	config.Net.MaxOpenRequests = 1
	config.Producer.Idempotent = key.idempotent
	if key.manual {
		config.Producer.Partitioner = sarama.NewManualPartitioner
	}
	producer, err := sarama.NewSyncProducer(addresses, config)
	if err == nil {
		producers[key] = producer
	}
	return producer, err
}

func encoder(data []byte) sarama.Encoder {
	if data == nil {
		return nil
	}
	return sarama.ByteEncoder(data)
}

func produce(request *lines.Request) (lines.Answer, error) {
	manual := len(request.Records) > 0 && request.Records[0].Partition != nil
	producer, err := producer(producerKey{request.Codec, request.Acks, request.Idempotent, manual})
	if err != nil {
		return nil, err
	}
	messages := make([]*sarama.ProducerMessage, 0, len(request.Records))
	for _, one := range request.Records {
		message := &sarama.ProducerMessage{Topic: request.Topic, Key: encoder(one.Key), Value: encoder(one.Value)}
		if one.Partition != nil {
			message.Partition = *one.Partition
		}
		if one.Timestamp != nil {
			message.Timestamp = time.UnixMilli(*one.Timestamp)
		}
		one.EachHeader(func(key string, value []byte) {
			message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(key), Value: value})
		})
		messages = append(messages, message)
	}
	if err := producer.SendMessages(messages); err != nil {
		return nil, err
	}
	offsets := make([][2]int64, 0, len(messages))
	for _, message := range messages {
		offsets = append(offsets, [2]int64{int64(message.Partition), message.Offset})
	}
	return lines.Answer{"offsets": offsets}, nil
}

func consume(request *lines.Request) (lines.Answer, error) {
	consumer, err := sarama.NewConsumer(addresses, config())
	if err != nil {
		return nil, err
	}
	defer func() { _ = consumer.Close() }()
	ctx, cancel := context.WithTimeout(background, request.Timeout())
	defer cancel()
	messages := make(chan *sarama.ConsumerMessage)
	for partition, offset := range request.Starts {
		reader, err := start(consumer, request.Topic, partition, offset, request.Reset)
		if err != nil {
			return nil, err
		}
		defer reader.AsyncClose()
		go func() {
			for message := range reader.Messages() {
				select {
				case messages <- message:
				case <-ctx.Done():
				}
			}
		}()
	}
	found := []lines.Record{}
	for len(found) < request.Count {
		select {
		case message := <-messages:
			found = append(found, received(message))
		case <-ctx.Done():
			return lines.Answer{"records": found}, nil
		}
	}
	return lines.Answer{"records": found}, nil
}

// start follows the policy itself: outside of groups sarama leaves that to the application.
func start(
	consumer sarama.Consumer, topic string, partition int32, offset int64, reset string,
) (sarama.PartitionConsumer, error) {
	policy := map[string]int64{"earliest": sarama.OffsetOldest, "latest": sarama.OffsetNewest}
	reader, err := consumer.ConsumePartition(topic, partition, offset)
	if errors.Is(err, sarama.ErrOffsetOutOfRange) && reset != "none" {
		return consumer.ConsumePartition(topic, partition, policy[reset])
	}
	return reader, err
}

func received(message *sarama.ConsumerMessage) lines.Record {
	timestamp := message.Timestamp.UnixMilli()
	one := lines.Record{
		Partition: &message.Partition, Offset: message.Offset, Key: message.Key, Value: message.Value,
		Timestamp: &timestamp, Headers: [][2]any{},
	}
	for _, header := range message.Headers {
		one.Headers = append(one.Headers, lines.Header(string(header.Key), header.Value))
	}
	return one
}

// worker is a member's handler: what it has been assigned is what it has claims for.
type worker struct {
	sync.Mutex
	count, got int
	enough     context.CancelFunc
	mine       map[string]map[int32]bool
}

func (*worker) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*worker) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (worker *worker) claim(topic string, partition int32, mine bool) {
	worker.Lock()
	defer worker.Unlock()
	if worker.mine[topic] == nil {
		worker.mine[topic] = map[int32]bool{}
	}
	worker.mine[topic][partition] = mine
	assigned := [][2]any{}
	for topic, numbers := range worker.mine {
		for number, has := range numbers {
			if has {
				assigned = append(assigned, [2]any{topic, number})
			}
		}
	}
	lines.Report(lines.Answer{"assigned": assigned})
}

func (worker *worker) full() bool {
	worker.Lock()
	defer worker.Unlock()
	return worker.count > 0 && worker.got == worker.count
}

// take says whether another message is wanted.
func (worker *worker) take() bool {
	worker.Lock()
	defer worker.Unlock()
	if worker.count > 0 && worker.got == worker.count {
		return false
	}
	worker.got++
	return true
}

func (worker *worker) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	worker.claim(claim.Topic(), claim.Partition(), true)
	defer worker.claim(claim.Topic(), claim.Partition(), false)
	for {
		select {
		case <-session.Context().Done():
			return nil
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			worker.work(session, message, claim.Messages())
		}
	}
}

// work reports and commits what has come so far, all at once.
func (worker *worker) work(
	session sarama.ConsumerGroupSession, message *sarama.ConsumerMessage, more <-chan *sarama.ConsumerMessage,
) {
	records := [][4]any{}
	for message != nil && worker.take() {
		records = append(records, [4]any{message.Topic, message.Partition, message.Offset, message.Value})
		session.MarkMessage(message, "")
		select {
		case message = <-more:
		default:
			message = nil
		}
	}
	if len(records) > 0 {
		lines.Report(lines.Answer{"records": records})
		session.Commit()
	}
	if worker.full() {
		worker.enough()
	}
}

func member(request *lines.Request) (lines.Answer, error) {
	strategies := map[string]sarama.BalanceStrategy{
		"range": sarama.NewBalanceStrategyRange(), "cooperative": sarama.NewBalanceStrategyCooperativeSticky(),
	}
	config := config()
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategies[request.Assignor]}
	config.Consumer.Group.Session.Timeout = request.Session()
	config.Consumer.Group.InstanceId = request.InstanceID
	group, err := sarama.NewConsumerGroup(addresses, request.Group, config)
	if err != nil {
		return nil, err
	}
	go func() {
		for err := range group.Errors() {
			log.Print(err)
		}
	}()
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	go func() {
		select {
		case <-lines.Leave:
			cancel()
		case <-ctx.Done():
		}
	}()
	worker := &worker{count: request.Count, enough: cancel, mine: map[string]map[int32]bool{}}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, request.Topics, worker); err != nil {
			log.Print(err)
		}
	}
	return lines.Answer{"left": true}, group.Close()
}

// with opens a client and its admin client for one request.
func with(use func(sarama.Client, sarama.ClusterAdmin) (lines.Answer, error)) (lines.Answer, error) {
	client, err := sarama.NewClient(addresses, config())
	if err != nil {
		return nil, err
	}
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return nil, err
	}
	defer func() { _ = admin.Close() }()
	return use(client, admin)
}

// ask is an admin verb.
func ask(use func(sarama.ClusterAdmin, *lines.Request) (lines.Answer, error)) lines.Verb {
	return func(request *lines.Request) (lines.Answer, error) {
		return with(func(_ sarama.Client, admin sarama.ClusterAdmin) (lines.Answer, error) { return use(admin, request) })
	}
}

func offsets(request *lines.Request) (lines.Answer, error) {
	times := map[any]int64{"earliest": sarama.OffsetOldest, "latest": sarama.OffsetNewest}
	at, named := times[request.At]
	if !named {
		at = int64(request.At.(float64))
	}
	return with(func(client sarama.Client, _ sarama.ClusterAdmin) (lines.Answer, error) {
		partitions, err := client.Partitions(request.Topic)
		found := map[int32]int64{}
		for _, partition := range partitions {
			if found[partition], err = client.GetOffset(request.Topic, partition, at); err != nil {
				return nil, err
			}
		}
		return lines.Answer{"offsets": found}, err
	})
}

func pointers(configs map[string]string) map[string]*string {
	found := map[string]*string{}
	for name, value := range configs {
		found[name] = &value
	}
	return found
}

func createTopic(admin sarama.ClusterAdmin, request *lines.Request) (lines.Answer, error) {
	detail := &sarama.TopicDetail{
		NumPartitions: request.PartitionCount(), ReplicationFactor: 1, ConfigEntries: pointers(request.Configs),
	}
	return nil, admin.CreateTopic(request.Topic, detail, false)
}

func deleteTopic(admin sarama.ClusterAdmin, request *lines.Request) (lines.Answer, error) {
	return nil, admin.DeleteTopic(request.Topic)
}

func topics(admin sarama.ClusterAdmin, _ *lines.Request) (lines.Answer, error) {
	found, err := admin.ListTopics()
	names := []string{}
	for name := range found {
		names = append(names, name)
	}
	return lines.Answer{"topics": names}, err
}

func describeTopic(admin sarama.ClusterAdmin, request *lines.Request) (lines.Answer, error) {
	found, err := admin.DescribeTopics([]string{request.Topic})
	if err != nil {
		return nil, err
	}
	leaders := map[int32]int32{}
	for _, partition := range found[0].Partitions {
		leaders[partition.ID] = partition.Leader
	}
	return lines.Answer{"leaders": leaders}, nil
}

func growTopic(admin sarama.ClusterAdmin, request *lines.Request) (lines.Answer, error) {
	return nil, admin.CreatePartitions(request.Topic, request.PartitionCount(), nil, false)
}

func topicConfigs(admin sarama.ClusterAdmin, request *lines.Request) (lines.Answer, error) {
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: request.Topic})
	configs := map[string]string{}
	for _, entry := range entries {
		configs[entry.Name] = entry.Value
	}
	return lines.Answer{"configs": configs}, err
}

func alterTopicConfigs(admin sarama.ClusterAdmin, request *lines.Request) (lines.Answer, error) {
	entries := map[string]sarama.IncrementalAlterConfigsEntry{}
	for name, value := range request.Configs {
		entries[name] = sarama.IncrementalAlterConfigsEntry{
			Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &value,
		}
	}
	return nil, admin.IncrementalAlterConfig(sarama.TopicResource, request.Topic, entries, false)
}

func deleteRecords(admin sarama.ClusterAdmin, request *lines.Request) (lines.Answer, error) {
	return nil, admin.DeleteRecords(request.Topic, request.Before)
}

func groups(admin sarama.ClusterAdmin, _ *lines.Request) (lines.Answer, error) {
	found, err := admin.ListConsumerGroups()
	names := []string{}
	for name := range found {
		names = append(names, name)
	}
	return lines.Answer{"groups": names}, err
}

func describeGroup(admin sarama.ClusterAdmin, request *lines.Request) (lines.Answer, error) {
	found, err := admin.DescribeConsumerGroups([]string{request.Group})
	if err != nil {
		return nil, err
	}
	return lines.Answer{"state": found[0].State, "members": len(found[0].Members)}, nil
}

func deleteGroup(admin sarama.ClusterAdmin, request *lines.Request) (lines.Answer, error) {
	return nil, admin.DeleteConsumerGroup(request.Group)
}

func groupOffsets(admin sarama.ClusterAdmin, request *lines.Request) (lines.Answer, error) {
	asked := map[string][]int32{request.Topic: request.PartitionList()}
	found, err := admin.ListConsumerGroupOffsets(request.Group, asked)
	if err != nil {
		return nil, err
	}
	offsets := map[int32]int64{}
	for _, partition := range asked[request.Topic] {
		offsets[partition] = found.GetBlock(request.Topic, partition).Offset
	}
	return lines.Answer{"offsets": offsets}, nil
}

func alterGroupOffsets(admin sarama.ClusterAdmin, request *lines.Request) (lines.Answer, error) {
	positions := map[int32]sarama.OffsetAndMetadata{}
	for partition, offset := range request.Offsets {
		positions[partition] = sarama.OffsetAndMetadata{Offset: offset, LeaderEpoch: -1}
	}
	wanted := map[string]map[int32]sarama.OffsetAndMetadata{request.Topic: positions}
	_, err := admin.AlterConsumerGroupOffsets(request.Group, wanted, nil)
	return nil, err
}

func cluster(admin sarama.ClusterAdmin, _ *lines.Request) (lines.Answer, error) {
	found, controller, err := admin.DescribeCluster()
	brokers := [][3]any{}
	for _, one := range found {
		host, port, _ := net.SplitHostPort(one.Addr())
		number, _ := strconv.Atoi(port)
		brokers = append(brokers, [3]any{one.ID(), host, number})
	}
	return lines.Answer{"brokers": brokers, "controller": controller}, err
}

func main() {
	sarama.Logger = log.New(io.Discard, "", 0)
	lines.Serve(map[string]lines.Verb{
		"produce": produce, "consume": consume, "member": member, "copy": copyRecords,
		"offsets": offsets, "cluster": ask(cluster),
		"create_topic": ask(createTopic), "delete_topic": ask(deleteTopic), "topics": ask(topics),
		"describe_topic": ask(describeTopic), "grow_topic": ask(growTopic),
		"topic_configs": ask(topicConfigs), "alter_topic_configs": ask(alterTopicConfigs),
		"delete_records": ask(deleteRecords), "groups": ask(groups), "describe_group": ask(describeGroup),
		"delete_group": ask(deleteGroup), "group_offsets": ask(groupOffsets),
		"alter_group_offsets": ask(alterGroupOffsets),
	}, codeOf)
}
