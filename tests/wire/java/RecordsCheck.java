import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import java.util.zip.CRC32;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.internals.BufferSupplier;

/**
 * RecordsCheck THEIRS OURS: describes every batch file in directory THEIRS, then writes batches of its own into
 * directory OURS and describes those, all by Kafka's classes. A description is one line for the batch and one per
 * record; the test describes the same files by its own reader and compares.
 */
public class RecordsCheck {
    static final long TIME = 1_700_000_000_000L;

    public static void main(String[] arguments) throws IOException {
        Path theirs = Path.of(arguments[0]), ours = Path.of(arguments[1]);
        for (CompressionType codec : CompressionType.values()) {
            writeAll(ours, codec);
        }
        StringBuilder out = new StringBuilder();
        for (Path directory : List.of(theirs, ours)) {
            try (var files = Files.list(directory)) {
                for (Path file : files.sorted().toList()) {
                    describe(file.getFileName().toString(), ByteBuffer.wrap(Files.readAllBytes(file)), out);
                }
            }
        }
        System.out.print(out);
    }

    // -- describing

    static void describe(String name, ByteBuffer bytes, StringBuilder out) {
        for (MutableRecordBatch mutable : MemoryRecords.readableRecords(bytes).batches()) {
            DefaultRecordBatch batch = (DefaultRecordBatch) mutable;
            out.append(String.join(" ", List.of(
                "batch", name,
                "" + batch.baseOffset(), "" + batch.lastOffset(), "" + batch.nextOffset(), "" + batch.partitionLeaderEpoch(),
                "" + batch.magic(), "" + batch.checksum(), batch.isValid() ? "valid" : "invalid",
                "" + batch.compressionType().id, batch.timestampType().toString(),
                "" + batch.baseTimestamp(), "" + batch.maxTimestamp(),
                "" + batch.producerId(), "" + batch.producerEpoch(), "" + batch.baseSequence(), "" + batch.lastSequence(),
                batch.isTransactional() ? "transactional" : "plain", batch.isControlBatch() ? "control" : "data",
                batch.deleteHorizonMs().isPresent() ? "" + batch.deleteHorizonMs().getAsLong() : "none",
                "" + batch.countOrNull(), "" + batch.sizeInBytes()))).append('\n');
            if (!batch.isValid()) {
                continue;
            }
            for (Record record : batch) {
                out.append(String.join(" ", "record", "" + record.offset(), "" + record.timestamp(),
                    bytes(record.key()), bytes(record.value()), headers(record.headers()))).append('\n');
                if (batch.isControlBatch()) {
                    EndTransactionMarker marker = EndTransactionMarker.deserialize(record);
                    out.append("marker ").append(marker.controlType()).append(' ').append(marker.coordinatorEpoch()).append('\n');
                }
            }
        }
    }

    static String headers(Header[] headers) {
        StringBuilder out = new StringBuilder("[");
        for (Header header : headers) {
            byte[] value = header.value();
            out.append(bytes(ByteBuffer.wrap(header.key().getBytes(StandardCharsets.UTF_8)))).append('=');
            out.append(bytes(value == null ? null : ByteBuffer.wrap(value))).append(';');
        }
        return out.append(']').toString();
    }

    static String bytes(ByteBuffer buffer) {
        if (buffer == null) {
            return "null";
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        if (bytes.length <= 64) {
            return "'" + HexFormat.of().formatHex(bytes);
        }
        CRC32 crc = new CRC32();
        crc.update(bytes);
        return bytes.length + "#" + crc.getValue();
    }

    // -- writing

    static void writeAll(Path directory, CompressionType codec) throws IOException {
        Compression compression = Compression.of(codec).build();
        String suffix = "." + codec.name;
        write(directory, "rich" + suffix, rich(compression));
        write(directory, "big" + suffix, big(compression));
        write(directory, "appendtime" + suffix, appendTime(compression));
        write(directory, "compacted" + suffix, filtered(rich(compression), true));
        if (codec == CompressionType.NONE) {
            write(directory, "emptied" + suffix, filtered(rich(compression), false));
            write(directory, "commit" + suffix, marker(ControlRecordType.COMMIT));
            write(directory, "abort" + suffix, marker(ControlRecordType.ABORT));
        }
        write(directory, "assigned" + suffix, edited(rich(compression), batch -> {
            batch.setLastOffset(123_456_789_012L);
            batch.setPartitionLeaderEpoch(42);
        }));
        write(directory, "appended" + suffix, edited(rich(compression), batch -> batch.setMaxTimestamp(TimestampType.LOG_APPEND_TIME, TIME + 5)));
        write(directory, "corrected" + suffix, edited(rich(compression), batch -> batch.setMaxTimestamp(TimestampType.CREATE_TIME, TIME + 6)));
    }

    static void write(Path directory, String name, ByteBuffer bytes) throws IOException {
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        Files.write(directory.resolve(name), copy);
    }

    /** Nulls, empty bytes, headers, times that go back and forth, sequences that wrap. */
    static ByteBuffer rich(Compression compression) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 16), RecordBatch.CURRENT_MAGIC_VALUE,
            compression, TimestampType.CREATE_TIME, 1000L, RecordBatch.NO_TIMESTAMP, 77L, (short) 3, Integer.MAX_VALUE - 20, true, 9);
        for (int i = 0; i < 100; i++) {
            byte[] key = i % 5 == 0 ? null : ("key-" + i).getBytes(StandardCharsets.UTF_8);
            byte[] value = i % 7 == 0 ? null : "v".repeat(i * 3).getBytes(StandardCharsets.UTF_8);
            Header[] headers = new Header[i % 3];
            for (int n = 0; n < headers.length; n++) {
                headers[n] = new RecordHeader("h\u00e9ader-" + n, i % 2 == 0 ? null : new byte[n * 40]);
            }
            builder.append(TIME + (i % 2 == 0 ? i * 1000L : -i * 100_000L), key, value, headers);
        }
        return builder.build().buffer();
    }

    /** More than a block of every codec, half of it random. */
    static ByteBuffer big(Compression compression) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 20), compression, TimestampType.CREATE_TIME, 0L);
        Random random = new Random(1);
        for (int size = 1; size < 400_000; size *= 3) {
            byte[] noise = new byte[size];
            random.nextBytes(noise);
            builder.append(TIME + size, noise, new byte[size]);
        }
        return builder.build().buffer();
    }

    static ByteBuffer appendTime(Compression compression) {
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 12), RecordBatch.CURRENT_MAGIC_VALUE,
            compression, TimestampType.LOG_APPEND_TIME, 5L, TIME);
        for (int i = 0; i < 10; i++) {
            builder.append(TIME - i, ("k" + i).getBytes(StandardCharsets.UTF_8), new byte[i]);
        }
        return builder.build().buffer();
    }

    static ByteBuffer marker(ControlRecordType type) {
        return MemoryRecords.withEndTransactionMarker(500L, TIME, 4, 77L, (short) 3, new EndTransactionMarker(type, 11)).buffer();
    }

    /** Compaction that keeps the odd offsets below 1080, or nothing but the header. */
    static ByteBuffer filtered(ByteBuffer batch, boolean keepSome) {
        MemoryRecords.RecordFilter filter = new MemoryRecords.RecordFilter(TIME, 1000L) {
            @Override
            protected BatchRetentionResult checkBatchRetention(RecordBatch batch) {
                return new BatchRetentionResult(BatchRetention.RETAIN_EMPTY, false);
            }

            @Override
            protected boolean shouldRetainRecord(RecordBatch batch, Record record) {
                return keepSome && record.offset() % 2 == 1 && record.offset() < 1080;
            }
        };
        ByteBuffer out = MemoryRecords.readableRecords(batch)
            .filterTo(filter, ByteBuffer.allocate(1 << 16), BufferSupplier.NO_CACHING, Integer.MAX_VALUE).outputBuffer();
        return out.flip();
    }

    static ByteBuffer edited(ByteBuffer batch, java.util.function.Consumer<MutableRecordBatch> edit) {
        MemoryRecords.readableRecords(batch).batches().forEach(edit);
        return batch;
    }
}
