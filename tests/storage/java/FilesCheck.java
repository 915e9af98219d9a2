// Writes and reads the small files of a Kafka log with Kafka's own classes, told by lines on standard input.
// See tests/storage/test_files_against_kafka.py for the commands; each is answered by one line.

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.metadata.properties.MetaProperties;
import org.apache.kafka.metadata.properties.MetaPropertiesVersion;
import org.apache.kafka.metadata.properties.PropertiesUtils;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.AbortedTxn;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.OffsetIndex;
import org.apache.kafka.storage.internals.log.OffsetPosition;
import org.apache.kafka.storage.internals.log.TimeIndex;
import org.apache.kafka.storage.internals.log.TransactionIndex;
import org.apache.kafka.storage.internals.log.TxnIndexSearchResult;

public class FilesCheck {
    static final LogDirFailureChannel FAILURES = new LogDirFailureChannel(1);
    static final List<AutoCloseable> left = new ArrayList<>();
    static OffsetIndex offsets;
    static TimeIndex times;
    static TransactionIndex transactions;
    static LeaderEpochFileCache epochs;
    static KafkaScheduler scheduler;

    static long number(String word) {
        return Long.parseLong(word);
    }

    static String text(AbortedTxn transaction) {
        return transaction.producerId() + " " + transaction.firstOffset() + " " + transaction.lastOffset() + " "
            + transaction.lastStableOffset();
    }

    static String index(String[] words) throws Exception {
        switch (words[1]) {
            case "open":
                offsets = new OffsetIndex(new File(words[2] + ".index"), number(words[3]), (int) number(words[4]));
                times = new TimeIndex(new File(words[2] + ".timeindex"), number(words[3]), (int) number(words[4]));
                transactions = new TransactionIndex(number(words[3]), new File(words[2] + ".txnindex"));
                offsets.sanityCheck();
                times.sanityCheck();
                transactions.sanityCheck();
                return offsets.entries() + " " + times.entries() + " " + transactions.allAbortedTxns().size();
            case "offset":
                offsets.append(number(words[2]), (int) number(words[3]));
                return "" + offsets.isFull();
            case "time":
                times.maybeAppend(number(words[2]), number(words[3]), words[4].equals("True"));
                return "" + times.isFull();
            case "aborted":
                transactions.append(new AbortedTxn(number(words[2]), number(words[3]), number(words[4]),
                    number(words[5])));
                return "";
            case "find": {
                OffsetPosition found = offsets.lookup(number(words[2]));
                return found.offset() + " " + found.position();
            }
            case "when": {
                var found = times.lookup(number(words[2]));
                return found.timestamp() + " " + found.offset();
            }
            case "collect": {
                TxnIndexSearchResult found = transactions.collectAbortedTxns(number(words[2]), number(words[3]));
                StringBuilder text = new StringBuilder();
                found.abortedTransactions().forEach(transaction -> text.append(text(transaction)).append("; "));
                return text.append(found.isComplete()).toString();
            }
            case "truncate":
                offsets.truncateTo(number(words[2]));
                times.truncateTo(number(words[2]));
                transactions.truncateTo(number(words[2]));
                return offsets.entries() + " " + times.entries() + " " + transactions.allAbortedTxns().size();
            case "close":
                offsets.close();
                times.close();
                transactions.close();
                return "";
            case "leave":
                // As a killed process does: what was preallocated stays. Kept, lest the mappings be collected.
                left.add(offsets);
                left.add(times);
                left.add(transactions);
                return "";
            default:
                throw new IllegalArgumentException(words[1]);
        }
    }

    static String epoch(String[] words) throws Exception {
        switch (words[1]) {
            case "open": {
                LeaderEpochCheckpointFile file = new LeaderEpochCheckpointFile(new File(words[2]), FAILURES);
                epochs = new LeaderEpochFileCache(new TopicPartition("t", 0), file, scheduler);
                break;
            }
            case "assign":
                epochs.assign((int) number(words[2]), number(words[3]));
                break;
            case "end":
                epochs.truncateFromEndAsyncFlush(number(words[2]));
                break;
            case "start":
                epochs.truncateFromStartAsyncFlush(number(words[2]));
                break;
            case "ask": {
                var end = epochs.endOffsetFor((int) number(words[2]), number(words[3]));
                return end.getKey() + " " + end.getValue() + " " + epochs.epochForOffset(number(words[3])).orElse(-1);
            }
            default:
                throw new IllegalArgumentException(words[1]);
        }
        StringBuilder text = new StringBuilder();
        epochs.epochEntries().forEach(entry ->
            text.append(entry.epoch()).append(' ').append(entry.startOffset()).append("; "));
        return text.toString();
    }

    static String write(String directory) throws Exception {
        Map<TopicPartition, Long> entries = new TreeMap<>((a, b) -> a.toString().compareTo(b.toString()));
        entries.put(new TopicPartition("orders", 0), 15L);
        entries.put(new TopicPartition("__consumer_offsets", 49), 1L << 60);
        new OffsetCheckpointFile(new File(directory, "recovery-point-offset-checkpoint"), FAILURES).write(entries);
        new OffsetCheckpointFile(new File(directory, "log-start-offset-checkpoint"), FAILURES);
        PartitionMetadataFile metadata = new PartitionMetadataFile(new File(directory, "partition.metadata"), FAILURES);
        metadata.record(Uuid.fromString("amtsbW5vcHFyc3R1dnd4eQ"));
        metadata.maybeFlush();
        MetaProperties properties = new MetaProperties.Builder().setVersion(MetaPropertiesVersion.V1)
            .setClusterId("a: b=c#d!").setNodeId(7).setDirectoryId(Uuid.fromString("amtsbW5vcHFyc3R1dnd4eQ")).build();
        PropertiesUtils.writePropertiesFile(properties.toProperties(), directory + "/meta.properties", true);
        new CleanShutdownFileHandler(directory).write(42);
        return "";
    }

    static String read(String directory) throws Exception {
        StringBuilder text = new StringBuilder();
        OffsetCheckpointFile points =
            new OffsetCheckpointFile(new File(directory, "recovery-point-offset-checkpoint"), FAILURES);
        Map<String, Long> sorted = new TreeMap<>();
        points.read().forEach((partition, offset) -> sorted.put(partition.toString(), offset));
        text.append(sorted).append(' ');
        PartitionMetadataFile metadata = new PartitionMetadataFile(new File(directory, "partition.metadata"), FAILURES);
        text.append(metadata.read().topicId()).append(' ');
        Properties properties = PropertiesUtils.readPropertiesFile(directory + "/meta.properties");
        text.append(new MetaProperties.Builder(properties).build()).append(' ');
        text.append(new CleanShutdownFileHandler(directory).read().getAsLong());
        return text.toString();
    }

    static String execute(String[] words) throws Exception {
        switch (words[0]) {
            case "index":
                return index(words);
            case "epoch":
                return epoch(words);
            case "write":
                return write(words[1]);
            case "read":
                return read(words[1]);
            case "lock": {
                FileChannel channel =
                    FileChannel.open(Path.of(words[1]), StandardOpenOption.CREATE, StandardOpenOption.WRITE);
                return channel.tryLock() == null ? "held" : "free";
            }
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] arguments) throws Exception {
        scheduler = new KafkaScheduler(1, true);
        scheduler.startup();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine())
            output.append(execute(line.split(" "))).append('\n');
        scheduler.shutdown();
        System.out.print(output);
        System.exit(0);
    }
}
