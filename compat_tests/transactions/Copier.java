import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * ADDRESS SOURCE TARGET COUNT: copies records exactly once, ten to a transaction. Every third transaction is
 * aborted, and its records are read again. Ends when COUNT records are copied.
 */
public class Copier {
    public static void main(String[] arguments) {
        Properties ofProducer = new Properties();
        ofProducer.put("bootstrap.servers", arguments[0]);
        ofProducer.put("transactional.id", arguments[2]);
        ofProducer.put("key.serializer", StringSerializer.class.getName());
        ofProducer.put("value.serializer", StringSerializer.class.getName());
        Properties ofConsumer = new Properties();
        ofConsumer.put("bootstrap.servers", arguments[0]);
        ofConsumer.put("group.id", arguments[2]);
        ofConsumer.put("isolation.level", "read_committed");
        ofConsumer.put("enable.auto.commit", "false");
        ofConsumer.put("auto.offset.reset", "earliest");
        ofConsumer.put("max.poll.records", "10");
        ofConsumer.put("key.deserializer", StringDeserializer.class.getName());
        ofConsumer.put("value.deserializer", StringDeserializer.class.getName());
        int count = Integer.parseInt(arguments[3]);
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(ofConsumer);
                KafkaProducer<String, String> producer = new KafkaProducer<>(ofProducer)) {
            producer.initTransactions();
            consumer.subscribe(List.of(arguments[1]));
            int copied = 0;
            int transactions = 0;
            while (copied < count) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                producer.beginTransaction();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(arguments[2], record.value()));
                    offsets.put(
                            new TopicPartition(record.topic(), record.partition()),
                            new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (transactions++ % 3 == 1) {
                    producer.abortTransaction();
                    for (TopicPartition partition : records.partitions()) {
                        consumer.seek(partition, records.records(partition).get(0).offset());
                    }
                } else {
                    producer.commitTransaction();
                    copied += records.count();
                }
            }
        }
    }
}
