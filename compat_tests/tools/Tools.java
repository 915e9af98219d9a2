// Runs Kafka's command-line tools one after another in one process, since each start of a JVM costs a second:
// {"main": CLASS, "arguments": [...], "input": TEXT} in, {"status": 0, "out": TEXT, "err": TEXT} out, by line.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

public final class Tools {
    /** What a tool does instead of ending the process. Many catch it, and end once more with another status. */
    static final class Ended extends RuntimeException {
        Ended() {
            super("ended", null, false, false);
        }
    }

    static final List<Runnable> hooks = new ArrayList<>();
    static Integer status;

    static void end(int wanted, String message) {
        status = status == null ? wanted : status;
        throw new Ended();
    }

    public static void main(String[] ignored) throws Exception {
        Exit.setExitProcedure(Tools::end);
        Exit.setHaltProcedure(Tools::end);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        ObjectMapper json = new ObjectMapper();
        PrintStream answers = System.out;
        var requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(json.writeValueAsString(run(json.readTree(line))));
            answers.flush();
        }
    }

    static Map<String, Object> run(JsonNode request) throws Exception {
        List<String> arguments = new ArrayList<>();
        request.get("arguments").forEach(one -> arguments.add(one.asText()));
        var out = new ByteArrayOutputStream();
        var err = new ByteArrayOutputStream();
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        System.setIn(new ByteArrayInputStream(request.path("input").asText().getBytes(StandardCharsets.UTF_8)));
        status = null;
        try {
            Class.forName(request.get("main").asText()).getMethod("main", String[].class)
                .invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (InvocationTargetException failed) {
            if (!(failed.getCause() instanceof Ended)) {
                failed.getCause().printStackTrace();
                status = 1;
            }
        }
        hooks.forEach(Runnable::run);
        hooks.clear();
        return Map.of(
            "status", status == null ? 0 : status,
            "out", out.toString(StandardCharsets.UTF_8),
            "err", err.toString(StandardCharsets.UTF_8));
    }
}
