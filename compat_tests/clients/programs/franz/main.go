// franz-go, as a program that program.py speaks with.
package main

import (
	"context"
	"errors"
	"os"
	"sort"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"kbroker/clients/lines"
)

var (
	address    = os.Args[1]
	background = context.Background()
	producers  = map[producerKey]*kgo.Client{}
	admin      = kadm.NewClient(must(kgo.NewClient(common()...)))
)

// oldMetadata is the least age at which metadata are asked for again. By default it is five seconds.
const oldMetadata = 10 * time.Millisecond

type producerKey struct {
	codec, acks        string
	idempotent, manual bool
}

func common(more ...kgo.Opt) []kgo.Opt {
	return append(more,
		kgo.SeedBrokers(address),
		kgo.MetadataMaxAge(lines.Metadata),
		kgo.MetadataMinAge(oldMetadata),
		kgo.FetchMaxWait(100*time.Millisecond),
	)
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func codeOf(err error) int {
	var known *kerr.Error
	if errors.As(err, &known) {
		return int(known.Code)
	}
	return -1
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

var acks = map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}

func producer(key producerKey) *kgo.Client {
	if client, ok := producers[key]; ok {
		return client
	}
	options := common(
		kgo.AllowAutoTopicCreation(),
		kgo.ProducerBatchCompression(codecs[key.codec]),
		kgo.RequiredAcks(acks[key.acks]),
		kgo.ProducerLinger(5*time.Millisecond),
		kgo.ProducerBatchMaxBytes(lines.LargestRecord),
		kgo.MaxBufferedRecords(200_000),
	)
	if !key.idempotent {
		options = append(options, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	if key.manual {
		options = append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	producers[key] = must(kgo.NewClient(options...))
	return producers[key]
}

func produce(request *lines.Request) (lines.Answer, error) {
	manual := len(request.Records) > 0 && request.Records[0].Partition != nil
	client := producer(producerKey{request.Codec, request.Acks, request.Idempotent, manual})
	records := make([]*kgo.Record, 0, len(request.Records))
	for _, one := range request.Records {
		record := &kgo.Record{Topic: request.Topic, Key: one.Key, Value: one.Value}
		if one.Partition != nil {
			record.Partition = *one.Partition
		}
		if one.Timestamp != nil {
			record.Timestamp = time.UnixMilli(*one.Timestamp)
		}
		one.EachHeader(func(key string, value []byte) {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: key, Value: value})
		})
		records = append(records, record)
	}
	if err := client.ProduceSync(background, records...).FirstErr(); err != nil {
		return nil, err
	}
	offsets := make([][2]int64, 0, len(records))
	for _, record := range records {
		offsets = append(offsets, [2]int64{int64(record.Partition), record.Offset})
	}
	return lines.Answer{"offsets": offsets}, nil
}

func consume(request *lines.Request) (lines.Answer, error) {
	starts := map[int32]kgo.Offset{}
	for partition, offset := range request.Starts {
		starts[partition] = kgo.NewOffset().At(offset)
	}
	reset := map[string]kgo.Offset{
		"earliest": kgo.NewOffset().AtStart(), "latest": kgo.NewOffset().AtEnd(), "none": kgo.NoResetOffset(),
	}
	client, err := kgo.NewClient(common(
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{request.Topic: starts}),
		kgo.ConsumeResetOffset(reset[request.Reset]),
	)...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(background, request.Timeout())
	defer cancel()
	found := []lines.Record{}
	for len(found) < request.Count && ctx.Err() == nil {
		fetches := client.PollRecords(ctx, request.Count-len(found))
		if err := fetches.Err(); err != nil && ctx.Err() == nil {
			return nil, err
		}
		for _, record := range fetches.Records() {
			found = append(found, received(record))
		}
	}
	return lines.Answer{"records": found}, nil
}

func received(record *kgo.Record) lines.Record {
	timestamp := record.Timestamp.UnixMilli()
	one := lines.Record{
		Partition: &record.Partition, Offset: record.Offset, Key: record.Key, Value: record.Value,
		Timestamp: &timestamp, Headers: [][2]any{},
	}
	for _, header := range record.Headers {
		one.Headers = append(one.Headers, lines.Header(header.Key, header.Value))
	}
	return one
}

// share is what a member has been assigned, as callbacks tell what comes and what goes.
type share struct {
	sync.Mutex
	mine map[string]map[int32]bool
}

func (share *share) change(partitions map[string][]int32, mine bool) {
	share.Lock()
	defer share.Unlock()
	for topic, numbers := range partitions {
		if share.mine[topic] == nil {
			share.mine[topic] = map[int32]bool{}
		}
		for _, number := range numbers {
			share.mine[topic][number] = mine
		}
	}
	assigned := [][2]any{}
	for topic, numbers := range share.mine {
		for number, has := range numbers {
			if has {
				assigned = append(assigned, [2]any{topic, number})
			}
		}
	}
	lines.Report(lines.Answer{"assigned": assigned})
}

func member(request *lines.Request) (lines.Answer, error) {
	share := &share{mine: map[string]map[int32]bool{}}
	come := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) { share.change(partitions, true) }
	gone := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) { share.change(partitions, false) }
	balancers := map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "cooperative": kgo.CooperativeStickyBalancer(),
	}
	options := common(
		kgo.ConsumerGroup(request.Group),
		kgo.ConsumeTopics(request.Topics...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(balancers[request.Assignor]),
		kgo.SessionTimeout(request.Session()),
		kgo.HeartbeatInterval(lines.Heartbeat),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(come), kgo.OnPartitionsRevoked(gone), kgo.OnPartitionsLost(gone),
	)
	if request.Pattern != "" {
		options = append(options, kgo.ConsumeRegex(), kgo.ConsumeTopics(request.Pattern))
	}
	if request.InstanceID != "" {
		options = append(options, kgo.InstanceID(request.InstanceID))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	work(client, request.Count)
	client.CloseAllowingRebalance()
	return lines.Answer{"left": true}, nil
}

func work(client *kgo.Client, count int) {
	for got := 0; count == 0 || got < count; {
		select {
		case <-lines.Leave:
			return
		default:
		}
		ctx, cancel := context.WithTimeout(background, 50*time.Millisecond)
		records := client.PollRecords(ctx, max(count-got, 0)).Records()
		cancel()
		if len(records) > 0 {
			got += len(records)
			report(records)
			_ = client.CommitRecords(background, records...)
		}
		client.AllowRebalance()
	}
}

func report(records []*kgo.Record) {
	found := make([][4]any, 0, len(records))
	for _, one := range records {
		found = append(found, [4]any{one.Topic, one.Partition, one.Offset, one.Value})
	}
	lines.Report(lines.Answer{"records": found})
}

// copyRecords goes on with a new session where one ends in an error, as the library wants it.
func copyRecords(request *lines.Request) (lines.Answer, error) {
	ctx, cancel := context.WithTimeout(background, request.Timeout())
	defer cancel()
	for {
		copied, err := copyInSession(ctx, request)
		if err == nil || ctx.Err() != nil {
			return lines.Answer{"copied": copied}, err
		}
	}
}

func copyInSession(ctx context.Context, request *lines.Request) (int64, error) {
	session, err := kgo.NewGroupTransactSession(common(
		kgo.ConsumerGroup(request.Group),
		kgo.TransactionalID(request.Group),
		kgo.ConsumeTopics(request.Topics[0]),
		kgo.DefaultProduceTopic(request.Topics[1]),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(request.Session()),
		kgo.HeartbeatInterval(lines.Heartbeat),
	)...)
	if err != nil {
		return 0, err
	}
	defer session.Close()
	// This ends what a former session has left open; only then the group's offsets can be had.
	if _, _, err := session.Client().ProducerID(ctx); err != nil {
		return 0, err
	}
	found, err := admin.FetchOffsets(ctx, request.Group)
	if err != nil {
		return 0, err
	}
	one, _ := found.Lookup(request.Topics[0], 0)
	copied := one.At
	for transactions := 0; copied < int64(request.Count); transactions++ {
		records := session.PollRecords(ctx, lines.Transaction).Records()
		if err := session.Begin(); err != nil {
			return copied, err
		}
		copies := make([]*kgo.Record, 0, len(records))
		for _, record := range records {
			copies = append(copies, &kgo.Record{Value: record.Value})
		}
		if err := session.ProduceSync(ctx, copies...).FirstErr(); err != nil {
			return copied, err
		}
		committed, err := session.End(ctx, kgo.TransactionEndTry(transactions%3 != 1))
		if err != nil {
			return copied, err
		}
		if committed && len(records) > 0 {
			copied = records[len(records)-1].Offset + 1
		}
	}
	return copied, nil
}

func offsets(request *lines.Request) (lines.Answer, error) {
	var listed kadm.ListedOffsets
	var err error
	switch at := request.At.(type) {
	case float64:
		listed, err = admin.ListOffsetsAfterMilli(background, int64(at), request.Topic)
	default:
		if at == "earliest" {
			listed, err = admin.ListStartOffsets(background, request.Topic)
		} else {
			listed, err = admin.ListEndOffsets(background, request.Topic)
		}
	}
	if err = errors.Join(err, listed.Error()); err != nil {
		return nil, err
	}
	found := map[int32]int64{}
	listed.Each(func(one kadm.ListedOffset) { found[one.Partition] = one.Offset })
	return lines.Answer{"offsets": found}, nil
}

func createTopic(request *lines.Request) (lines.Answer, error) {
	configs := map[string]*string{}
	for name, value := range request.Configs {
		configs[name] = &value
	}
	_, err := admin.CreateTopic(background, request.PartitionCount(), 1, configs, request.Topic)
	return nil, err
}

func deleteTopic(request *lines.Request) (lines.Answer, error) {
	_, err := admin.DeleteTopic(background, request.Topic)
	for _, producer := range producers {
		producer.PurgeTopicsFromClient(request.Topic) // or it would go on with the old topic's id
	}
	return nil, err
}

func topics(*lines.Request) (lines.Answer, error) {
	time.Sleep(oldMetadata) // so that the answer is not what the client remembers
	found, err := admin.ListTopics(background)
	return lines.Answer{"topics": found.Names()}, err
}

func describeTopic(request *lines.Request) (lines.Answer, error) {
	found, err := admin.ListTopics(background, request.Topic)
	if err = errors.Join(err, found.Error()); err != nil {
		return nil, err
	}
	leaders := map[int32]int32{}
	for number, partition := range found[request.Topic].Partitions {
		leaders[number] = partition.Leader
	}
	return lines.Answer{"leaders": leaders}, nil
}

func growTopic(request *lines.Request) (lines.Answer, error) {
	answers, err := admin.UpdatePartitions(background, int(request.PartitionCount()), request.Topic)
	return nil, errors.Join(err, answers.Error())
}

func topicConfigs(request *lines.Request) (lines.Answer, error) {
	answers, err := admin.DescribeTopicConfigs(background, request.Topic)
	if err != nil {
		return nil, err
	}
	configs := map[string]string{}
	for _, config := range answers[0].Configs {
		configs[config.Key] = config.MaybeValue()
	}
	return lines.Answer{"configs": configs}, answers[0].Err
}

func alterTopicConfigs(request *lines.Request) (lines.Answer, error) {
	changes := []kadm.AlterConfig{}
	for name, value := range request.Configs {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: &value})
	}
	answers, err := admin.AlterTopicConfigs(background, changes, request.Topic)
	if err != nil {
		return nil, err
	}
	return nil, answers[0].Err
}

func deleteRecords(request *lines.Request) (lines.Answer, error) {
	before := kadm.Offsets{}
	for partition, offset := range request.Before {
		before.AddOffset(request.Topic, partition, offset, -1)
	}
	answers, err := admin.DeleteRecords(background, before)
	return nil, errors.Join(err, answers.Error())
}

func groups(*lines.Request) (lines.Answer, error) {
	found, err := admin.ListGroups(background)
	return lines.Answer{"groups": found.Groups()}, err
}

func describeGroup(request *lines.Request) (lines.Answer, error) {
	found, err := admin.DescribeGroups(background, request.Group)
	if err = errors.Join(err, found.Error()); err != nil {
		return nil, err
	}
	group := found[request.Group]
	return lines.Answer{"state": group.State, "members": len(group.Members)}, nil
}

func deleteGroup(request *lines.Request) (lines.Answer, error) {
	_, err := admin.DeleteGroup(background, request.Group)
	return nil, err
}

func groupOffsets(request *lines.Request) (lines.Answer, error) {
	found, err := admin.FetchOffsets(background, request.Group)
	if err = errors.Join(err, found.Error()); err != nil {
		return nil, err
	}
	offsets := map[int32]int64{}
	for _, partition := range request.PartitionList() {
		offsets[partition] = -1
		if one, ok := found.Lookup(request.Topic, partition); ok {
			offsets[partition] = one.At
		}
	}
	return lines.Answer{"offsets": offsets}, nil
}

func alterGroupOffsets(request *lines.Request) (lines.Answer, error) {
	positions := kadm.Offsets{}
	for partition, offset := range request.Offsets {
		positions.AddOffset(request.Topic, partition, offset, -1)
	}
	return nil, admin.CommitAllOffsets(background, request.Group, positions)
}

func cluster(*lines.Request) (lines.Answer, error) {
	found, err := admin.BrokerMetadata(background)
	brokers := [][3]any{}
	for _, one := range found.Brokers {
		brokers = append(brokers, [3]any{one.NodeID, one.Host, one.Port})
	}
	sort.Slice(brokers, func(i, j int) bool { return brokers[i][0].(int32) < brokers[j][0].(int32) })
	return lines.Answer{"brokers": brokers, "controller": found.Controller}, err
}

func main() {
	lines.Serve(map[string]lines.Verb{
		"produce": produce, "consume": consume, "member": member, "copy": copyRecords,
		"offsets": offsets, "cluster": cluster,
		"create_topic": createTopic, "delete_topic": deleteTopic, "topics": topics, "describe_topic": describeTopic,
		"grow_topic": growTopic, "topic_configs": topicConfigs, "alter_topic_configs": alterTopicConfigs,
		"delete_records": deleteRecords, "groups": groups, "describe_group": describeGroup,
		"delete_group": deleteGroup, "group_offsets": groupOffsets, "alter_group_offsets": alterGroupOffsets,
	}, codeOf)
}
