// Kafka's Java clients as a program that compat_tests/clients/program.py speaks with: lines of JSON in and out.
// One source for every version; what a version has and the oldest has not is found by reflection.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeClusterOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.InvalidOffsetException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.TopicPartitionReplica;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class Client {
    static final ObjectMapper JSON = new ObjectMapper();
    static final int OFFSET_OUT_OF_RANGE = 1;
    static final int LARGEST_RECORD = 8 << 20;
    static final String END = "";

    static final BlockingQueue<String> lines = new LinkedBlockingQueue<>();
    static final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    static String address;
    static Admin admin;

    public static void main(String[] arguments) throws Exception {
        address = arguments[arguments.length - 1];
        Thread reader = new Thread(Client::readLines);
        reader.setDaemon(true);
        reader.start();
        for (String line = lines.take(); line != END; line = lines.take()) {
            answer(JSON.readTree(line));
        }
        producers.values().forEach(producer -> producer.close(Duration.ZERO));
        if (admin != null) {
            admin.close(Duration.ZERO);
        }
    }

    static void readLines() {
        try (var input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                lines.add(line);
            }
        } catch (java.io.IOException ended) {
            System.err.println(ended);
        }
        lines.add(END);
    }

    static void report(Object answer) {
        try {
            System.out.println(JSON.writeValueAsString(answer));
        } catch (com.fasterxml.jackson.core.JsonProcessingException bug) {
            throw new IllegalStateException(bug);
        }
    }

    static void answer(JsonNode request) {
        try {
            report(answerTo(request));
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            cause.printStackTrace();
            report(Map.of("error", codeOf(cause), "text", cause.toString()));
        }
    }

    static int codeOf(Throwable error) {
        return error instanceof InvalidOffsetException ? OFFSET_OUT_OF_RANGE : Errors.forException(error).code();
    }

    static Object answerTo(JsonNode asked) throws Exception {
        String topic = asked.path("topic").asText();
        String group = asked.path("group").asText();
        switch (asked.get("do").asText()) {
            case "produce": return produce(asked, topic);
            case "consume": return consume(asked, topic);
            case "member": return member(asked, group);
            case "offsets": return offsets(topic, asked.get("at"));
            case "create_topic": {
                NewTopic wanted = new NewTopic(topic, asked.get("partitions").asInt(), (short) 1);
                admin().createTopics(List.of(wanted.configs(strings(asked.path("configs"))))).all().get();
                return Map.of();
            }
            case "delete_topic": admin().deleteTopics(List.of(topic)).all().get(); return Map.of();
            case "topics": return Map.of("topics", admin().listTopics().names().get());
            case "describe_topic": return Map.of("leaders", leaders(topic));
            case "grow_topic": {
                int count = asked.get("partitions").asInt();
                admin().createPartitions(Map.of(topic, NewPartitions.increaseTo(count))).all().get();
                return Map.of();
            }
            case "topic_configs": {
                Map<String, String> found = new TreeMap<>();
                ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
                admin().describeConfigs(List.of(resource)).all().get().get(resource).entries()
                    .forEach(entry -> found.put(entry.name(), entry.value()));
                return Map.of("configs", found);
            }
            case "alter_topic_configs":
                alterConfigs(new ConfigResource(ConfigResource.Type.TOPIC, topic), strings(asked.get("configs")));
                return Map.of();
            case "delete_records": {
                Map<TopicPartition, RecordsToDelete> before = new HashMap<>();
                asked.get("before").fields().forEachRemaining(one -> before.put(
                    partition(topic, one.getKey()), RecordsToDelete.beforeOffset(one.getValue().asLong())));
                admin().deleteRecords(before).all().get();
                return Map.of();
            }
            case "groups": {
                List<String> names = new ArrayList<>();
                admin().listConsumerGroups().all().get().forEach(one -> names.add(one.groupId()));
                return Map.of("groups", names);
            }
            case "describe_group": {
                var found = admin().describeConsumerGroups(List.of(group)).all().get().get(group);
                return Map.of("state", found.state().toString(), "members", found.members().size());
            }
            case "delete_group": admin().deleteConsumerGroups(List.of(group)).all().get(); return Map.of();
            case "group_offsets": return groupOffsets(asked, group, topic);
            case "alter_group_offsets": {
                Map<TopicPartition, OffsetAndMetadata> wanted = new HashMap<>();
                asked.get("offsets").fields().forEachRemaining(one -> wanted.put(
                    partition(topic, one.getKey()), new OffsetAndMetadata(one.getValue().asLong())));
                admin().alterConsumerGroupOffsets(group, wanted).all().get();
                return Map.of();
            }
            case "cluster": {
                var found = admin().describeCluster();
                List<Object> brokers = new ArrayList<>();
                for (Node node : found.nodes().get()) {
                    brokers.add(List.of(node.id(), node.host(), node.port()));
                }
                return Map.of("brokers", brokers, "controller", found.controller().get().id());
            }
            case "transact": return transact(asked, topic);
            case "administer": return administer(topic, group);
            default: throw new IllegalArgumentException("no such verb");
        }
    }

    // Records

    static Object produce(JsonNode asked, String topic) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(
            asked.path("codec").asText("none"), asked.path("acks").asText("all"), asked.path("idempotent").asBoolean());
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : asked.get("records")) {
            List<Header> headers = new ArrayList<>();
            record.get("headers").forEach(one -> headers.add(new RecordHeader(one.get(0).asText(), bytes(one.get(1)))));
            JsonNode partition = record.get("partition"), timestamp = record.get("timestamp");
            sent.add(producer.send(new ProducerRecord<>(
                topic,
                partition.isNull() ? null : partition.asInt(),
                timestamp.isNull() ? null : timestamp.asLong(),
                bytes(record.get("key")),
                bytes(record.get("value")),
                headers)));
        }
        producer.flush();
        List<Object> offsets = new ArrayList<>();
        for (Future<RecordMetadata> one : sent) {
            offsets.add(List.of(one.get().partition(), one.get().offset()));
        }
        return Map.of("offsets", offsets);
    }

    static KafkaProducer<byte[], byte[]> producer(String codec, String acks, boolean idempotent) {
        return producers.computeIfAbsent(codec + acks + idempotent, name -> new KafkaProducer<>(
            Map.of(
                "bootstrap.servers", address,
                "compression.type", codec,
                "acks", acks,
                "enable.idempotence", idempotent,
                "linger.ms", 5,
                "max.request.size", LARGEST_RECORD),
            new ByteArraySerializer(),
            new ByteArraySerializer()));
    }

    static KafkaConsumer<byte[], byte[]> consumer(Map<String, Object> more) {
        Map<String, Object> options = new HashMap<>(more);
        options.put("bootstrap.servers", address);
        options.put("enable.auto.commit", false);
        options.put("fetch.max.wait.ms", 100);
        options.put("metadata.max.age.ms", 500);
        return new KafkaConsumer<>(options, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static Object consume(JsonNode asked, String topic) {
        int count = asked.get("count").asInt();
        long deadline = System.currentTimeMillis() + asked.path("timeout_ms").asLong(30_000);
        List<Object> found = new ArrayList<>();
        Map<String, Object> options = Map.of(
            "auto.offset.reset", asked.path("reset").asText("none"),
            "isolation.level", asked.path("isolation").asText("read_uncommitted"));
        try (var reader = consumer(options)) {
            Map<TopicPartition, Long> starts = new HashMap<>();
            asked.get("starts").fields().forEachRemaining(
                one -> starts.put(partition(topic, one.getKey()), one.getValue().asLong()));
            reader.assign(starts.keySet());
            starts.forEach(reader::seek);
            while (found.size() < count && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : reader.poll(Duration.ofMillis(200))) {
                    if (found.size() < count) {
                        found.add(shown(record));
                    }
                }
            }
        }
        return Map.of("records", found);
    }

    static Map<String, Object> shown(ConsumerRecord<byte[], byte[]> record) {
        List<Object> headers = new ArrayList<>();
        for (Header header : record.headers()) {
            List<Object> pair = new ArrayList<>();
            pair.add(header.key());
            pair.add(text(header.value()));
            headers.add(pair);
        }
        Map<String, Object> shown = new LinkedHashMap<>();
        shown.put("partition", record.partition());
        shown.put("offset", record.offset());
        shown.put("key", text(record.key()));
        shown.put("value", text(record.value()));
        shown.put("headers", headers);
        shown.put("timestamp", record.timestamp());
        return shown;
    }

    // Transactions

    /** Values of one transaction and an offset of a group, which then commits, aborts, or stays open. */
    static Object transact(JsonNode asked, String topic) throws Exception {
        String id = asked.get("id").asText();
        KafkaProducer<byte[], byte[]> producer = producers.get(id);
        if (producer == null) {
            Map<String, Object> options = Map.of("bootstrap.servers", address, "transactional.id", id);
            producer = new KafkaProducer<>(options, new ByteArraySerializer(), new ByteArraySerializer());
            producers.put(id, producer);
            producer.initTransactions();
        }
        producer.beginTransaction();
        for (JsonNode value : asked.get("values")) {
            producer.send(new ProducerRecord<>(topic, value.asText().getBytes(StandardCharsets.UTF_8)));
        }
        if (asked.hasNonNull("offset")) {
            var offset = Map.of(partition(topic, 0), new OffsetAndMetadata(asked.get("offset").asLong()));
            producer.sendOffsetsToTransaction(offset, new ConsumerGroupMetadata(asked.get("group").asText()));
        }
        producer.flush();
        switch (asked.get("then").asText()) {
            case "commit": producer.commitTransaction(); break;
            case "abort": producer.abortTransaction(); break;
            default: break;
        }
        return Map.of();
    }

    // Groups

    static Object member(JsonNode asked, String group) {
        boolean cooperative = asked.path("assignor").asText("range").equals("cooperative");
        Map<String, Object> options = new HashMap<>(Map.of(
            "group.id", group,
            "auto.offset.reset", "earliest",
            "partition.assignment.strategy",
            cooperative ? CooperativeStickyAssignor.class.getName() : RangeAssignor.class.getName(),
            "session.timeout.ms", 1500,
            "heartbeat.interval.ms", 200));
        if (asked.hasNonNull("instance_id")) {
            options.put("group.instance.id", asked.get("instance_id").asText());
        }
        int count = asked.path("count").asInt(Integer.MAX_VALUE);
        try (var reader = consumer(options)) {
            ConsumerRebalanceListener listener = new Share();
            if (asked.hasNonNull("topics")) {
                List<String> topics = new ArrayList<>();
                asked.get("topics").forEach(one -> topics.add(one.asText()));
                reader.subscribe(topics, listener);
            } else {
                reader.subscribe(Pattern.compile(asked.get("pattern").asText()), listener);
            }
            for (int got = 0; got < count && lines.isEmpty(); ) {
                got += readSome(reader, count - got);
            }
        }
        return Map.of("left", true);
    }

    static int readSome(KafkaConsumer<byte[], byte[]> reader, int most) {
        List<Object> found = new ArrayList<>();
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        for (ConsumerRecord<byte[], byte[]> record : reader.poll(Duration.ofMillis(50))) {
            if (found.size() < most) {
                found.add(Arrays.asList(record.topic(), record.partition(), record.offset(), text(record.value())));
                positions.put(partition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
        }
        if (!found.isEmpty()) {
            report(Map.of("records", found));
            try {
                reader.commitSync(positions);
            } catch (CommitFailedException | RebalanceInProgressException notNow) {
                System.err.println(notNow);
            }
        }
        return found.size();
    }

    /** Reports what a member has, at each change. */
    static final class Share implements ConsumerRebalanceListener {
        private final Set<String> topics = new TreeSet<>();
        private final TreeMap<String, TopicPartition> mine = new TreeMap<>();

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            partitions.forEach(one -> mine.put(one.toString(), one));
            tell();
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            partitions.forEach(one -> mine.remove(one.toString()));
            tell();
        }

        private void tell() {
            List<Object> assigned = new ArrayList<>();
            mine.values().forEach(one -> assigned.add(List.of(one.topic(), one.partition())));
            report(Map.of("assigned", assigned));
        }
    }

    static Object groupOffsets(JsonNode asked, String group, String topic) throws Exception {
        Map<TopicPartition, OffsetAndMetadata> found =
            admin().listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        Map<Integer, Long> offsets = new TreeMap<>();
        for (JsonNode number : asked.get("partitions")) {
            OffsetAndMetadata one = found.get(partition(topic, number.asText()));
            offsets.put(number.asInt(), one == null ? -1 : one.offset());
        }
        return Map.of("offsets", offsets);
    }

    // Administration

    static Admin admin() {
        if (admin == null) {
            admin = Admin.create(Map.of("bootstrap.servers", address, "request.timeout.ms", 10_000, "default.api.timeout.ms", 20_000));
        }
        return admin;
    }

    static Map<Integer, Integer> leaders(String topic) throws Exception {
        Map<Integer, Integer> found = new TreeMap<>();
        for (TopicPartitionInfo one : admin().describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions()) {
            found.put(one.partition(), one.leader().id());
        }
        return found;
    }

    static Object offsets(String topic, JsonNode at) throws Exception {
        OffsetSpec spec = at.isNumber() ? OffsetSpec.forTimestamp(at.asLong())
            : at.asText().equals("earliest") ? OffsetSpec.earliest() : OffsetSpec.latest();
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        leaders(topic).keySet().forEach(number -> asked.put(partition(topic, number), spec));
        Map<Integer, Long> found = new TreeMap<>();
        admin().listOffsets(asked).all().get().forEach((place, info) -> found.put(place.partition(), info.offset()));
        return Map.of("offsets", found);
    }

    static void alterConfigs(ConfigResource resource, Map<String, String> values) throws Exception {
        List<AlterConfigOp> changes = new ArrayList<>();
        values.forEach((name, value) ->
            changes.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
        admin().incrementalAlterConfigs(Map.of(resource, changes)).all().get();
    }

    interface Step {
        Object take() throws Exception;
    }

    /** Everything else that an Admin can be asked about a topic with one partition, its group and the broker. */
    static Object administer(String topic, String group) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        TopicPartition place = partition(topic, 0);
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        step(found, "listOffsets", () -> {
            Map<String, Long> ends = new TreeMap<>();
            for (var spec : Map.of("max timestamp", OffsetSpec.maxTimestamp(), "latest", OffsetSpec.latest()).entrySet()) {
                ListOffsetsResultInfo info = admin().listOffsets(Map.of(place, spec.getValue())).all().get().get(place);
                ends.put(spec.getKey(), info.offset());
            }
            return ends;
        });
        step(found, "describeTopics by id", () -> {
            var id = admin().describeTopics(List.of(topic)).allTopicNames().get().get(topic).topicId();
            var ids = org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(id));
            return admin().describeTopics(ids).allTopicIds().get().get(id).name();
        });
        step(found, "describeLogDirs", () -> {
            var replicas = admin().describeLogDirs(List.of(1)).allDescriptions().get().get(1)
                .values().iterator().next().replicaInfos();
            return Map.of("size is known", replicas.get(place).size() > 0, "lag", replicas.get(place).offsetLag());
        });
        step(found, "describeReplicaLogDirs", () -> {
            TopicPartitionReplica replica = new TopicPartitionReplica(topic, 0, 1);
            var info = admin().describeReplicaLogDirs(List.of(replica)).all().get().get(replica);
            return info.getCurrentReplicaLogDir() != null;
        });
        step(found, "describeProducers", () -> {
            var producers = admin().describeProducers(List.of(place)).all().get().get(place).activeProducers();
            return List.of(producers.size(), producers.get(0).lastSequence(), producers.get(0).producerEpoch());
        });
        step(found, "electLeaders", () -> {
            var outcome = admin().electLeaders(ElectionType.PREFERRED, Set.of(place)).partitions().get().get(place);
            return outcome.map(error -> (int) Errors.forException(error).code()).orElse(0);
        });
        step(found, "listPartitionReassignments", () -> admin().listPartitionReassignments().reassignments().get().size());
        step(found, "describeConfigs of a broker", () ->
            admin().describeConfigs(List.of(broker)).all().get().get(broker).get("log.retention.hours").value());
        step(found, "alterConfigs of a broker", () -> {
            alterConfigs(broker, Map.of("log.cleaner.threads", "2"));
            String value = "";
            for (int times = 0; times < 100 && !value.equals("2"); times++) {
                value = admin().describeConfigs(List.of(broker)).all().get().get(broker).get("log.cleaner.threads").value();
            }
            var undo = new AlterConfigOp(new ConfigEntry("log.cleaner.threads", null), AlterConfigOp.OpType.DELETE);
            admin().incrementalAlterConfigs(Map.of(broker, List.of(undo))).all().get();
            return value;
        });
        step(found, "describeFeatures", () -> admin().describeFeatures().featureMetadata().get().finalizedFeatures().keySet());
        step(found, "describeCluster", () -> {
            var options = new DescribeClusterOptions().includeAuthorizedOperations(true);
            return new TreeSet<>(admin().describeCluster(options).authorizedOperations().get());
        });
        step(found, "listConsumerGroups", () -> admin().listConsumerGroups().all().get().stream()
            .filter(one -> one.groupId().equals(group)).map(one -> one.state().get().toString()).findFirst().orElse("none"));
        step(found, "deleteConsumerGroupOffsets", () -> {
            admin().deleteConsumerGroupOffsets(group, Set.of(place)).all().get();
            return admin().listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().containsKey(place);
        });
        step(found, "listClientMetricsResources", () -> admin().listClientMetricsResources().all().get().size());
        step(found, "describeUserScramCredentials", () -> admin().describeUserScramCredentials().all().get().size());
        return found;
    }

    static void step(Map<String, Object> found, String name, Step step) {
        try {
            found.put(name, step.take());
        } catch (Exception error) {
            Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
            found.put(name, cause.getClass().getSimpleName());
        }
    }

    // Bytes and names

    static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    static String text(byte[] data) {
        return data == null ? null : Base64.getEncoder().encodeToString(data);
    }

    static TopicPartition partition(String topic, Object number) {
        return new TopicPartition(topic, Integer.parseInt(number.toString()));
    }

    static Map<String, String> strings(JsonNode object) {
        Map<String, String> found = new HashMap<>();
        for (Iterator<Map.Entry<String, JsonNode>> fields = object.fields(); fields.hasNext(); ) {
            Map.Entry<String, JsonNode> one = fields.next();
            found.put(one.getKey(), one.getValue().asText());
        }
        return found;
    }
}
