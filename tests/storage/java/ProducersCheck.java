// A log of Apache Kafka, told by lines on standard input what to append; says what it answered, one line each.
// See tests/storage/test_producers_against_kafka.py for the commands.

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.function.Supplier;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogAppendInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

public class ProducersCheck {
    static final long[] NOW = {0};
    static final Time TIME = new Time() {
        public long milliseconds() {
            return NOW[0];
        }

        public long nanoseconds() {
            return NOW[0] * 1_000_000;
        }

        public void sleep(long ms) {
        }

        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
        }
    };

    static KafkaScheduler scheduler;
    static Path root;
    static String name;
    static boolean verify;
    static UnifiedLog log;
    static final Map<Long, VerificationGuard> guards = new HashMap<>();

    static void open(boolean clean) throws Exception {
        File directory = root.resolve(name).toFile();
        log = UnifiedLog.create(directory, new LogConfig(Map.of()), 0, 0, scheduler, new BrokerTopicStats(), TIME,
            900_000, new ProducerStateManagerConfig(86_400_000, verify), 600_000, new LogDirFailureChannel(1), clean,
            Optional.empty());
    }

    static String append(String hex, AppendOrigin origin, VerificationGuard guard, int version) {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(hex)));
        LogAppendInfo info =
            log.appendAsLeader(records, 0, origin, RequestLocal.noCaching(), guard, (short) version);
        return info.firstOffset() + " " + info.lastOffset() + " " + info.logAppendTime();
    }

    static String state() throws Exception {
        StringBuilder text = new StringBuilder();
        Map<Long, ProducerStateEntry> producers = new TreeMap<>(log.producerStateManager().activeProducers());
        producers.forEach((producerId, entry) -> {
            text.append(producerId).append(' ').append(entry.producerEpoch()).append(' ')
                .append(entry.coordinatorEpoch()).append(' ').append(entry.lastTimestamp()).append(' ')
                .append(entry.currentTxnFirstOffset().orElse(-1));
            entry.batchMetadata().forEach(batch -> text.append(" (").append(batch.lastSeq()).append(' ')
                .append(batch.lastOffset()).append(' ').append(batch.offsetDelta()).append(' ')
                .append(batch.timestamp()).append(')'));
            text.append("; ");
        });
        text.append("late ").append(log.producerStateManager().hasLateTransaction(NOW[0]));
        return text.toString();
    }

    static String aborted() {
        StringBuilder text = new StringBuilder();
        log.collectAbortedTransactions(0, Long.MAX_VALUE).forEach(transaction ->
            text.append(transaction.producerId()).append(' ').append(transaction.firstOffset()).append(' ')
                .append(transaction.lastOffset()).append(' ').append(transaction.lastStableOffset()).append("; "));
        return text.toString();
    }

    static String execute(String[] words) throws Exception {
        switch (words[0]) {
            case "new":
                name = words[1];
                verify = words[2].equals("1");
                guards.clear();
                open(true);
                return "";
            case "now":
                NOW[0] = Long.parseLong(words[1]);
                return "";
            case "data": {
                AppendOrigin origin = AppendOrigin.valueOf(words[1]);
                long producerId = Long.parseLong(words[2]);
                return append(words[3], origin, guards.getOrDefault(producerId, VerificationGuard.SENTINEL), 0);
            }
            case "marker":
                return append(words[2], AppendOrigin.COORDINATOR, VerificationGuard.SENTINEL,
                    Integer.parseInt(words[1]));
            case "verify": {
                long producerId = Long.parseLong(words[1]);
                VerificationGuard guard = log.maybeStartTransactionVerification(producerId,
                    Integer.parseInt(words[2]), Short.parseShort(words[3]), words[4].equals("1"));
                guards.put(producerId, guard);
                return guard.equals(VerificationGuard.SENTINEL) ? "open" : "guard";
            }
            case "watermark":
                log.updateHighWatermark(Long.parseLong(words[1]));
                return "" + log.lastStableOffset();
            case "expire":
                log.removeExpiredProducers(NOW[0]);
                return "";
            case "restart": {
                long highWatermark = log.highWatermark();
                boolean clean = words[1].equals("clean");
                if (clean)
                    log.close();
                open(clean);
                log.updateHighWatermark(highWatermark);
                return "" + log.lastStableOffset();
            }
            case "snapshot": {
                log.producerStateManager().takeSnapshot();
                Path path = root.resolve(name).resolve(String.format("%020d.snapshot", log.logEndOffset()));
                return HexFormat.of().formatHex(Files.readAllBytes(path));
            }
            case "state":
                return state();
            case "aborted":
                return aborted();
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] arguments) throws Exception {
        root = Path.of(arguments[0]);
        scheduler = new KafkaScheduler(1, true);
        scheduler.startup();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String answer;
            try {
                answer = execute(line.split(" "));
            } catch (RuntimeException error) {
                Errors known = Errors.forException(error);
                if (known == Errors.UNKNOWN_SERVER_ERROR)
                    throw error;
                answer = "error " + known.code();
            }
            output.append(answer).append('\n');
        }
        System.out.print(output);
        System.exit(0);
    }
}
