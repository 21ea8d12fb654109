import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after the other in one virtual machine. A line of input is a call: the class, its arguments and what it
 * reads from its input, which comes last and is empty for most, separated by the byte 0x1f, with line feeds in it as 0x1e. An answer is a
 * line with the exit status and the number of bytes that the tool printed, and those bytes.
 */
public final class Tools {
    /** Thrown where a tool would end its process. */
    private static final class Ended extends Error {
        private static final long serialVersionUID = 1L;
    }

    private static Integer status;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        Exit.Procedure ends = (code, message) -> {
            // What comes after the first is a tool that caught our error.
            status = status == null ? Integer.valueOf(code) : status;
            throw new Ended();
        };
        Exit.setExitProcedure(ends);
        Exit.setHaltProcedure(ends);
        List<Runnable> hooks = new ArrayList<>();
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            String[] words = line.split("\u001f", -1);
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream out = new PrintStream(printed, true, StandardCharsets.UTF_8);
            System.setOut(out);
            System.setErr(out);
            System.setIn(new ByteArrayInputStream(words[words.length - 1].replace('\u001e', '\n').getBytes(StandardCharsets.UTF_8)));
            status = null;
            try {
                Class.forName(words[0]).getMethod("main", String[].class)
                    .invoke(null, (Object) Arrays.copyOfRange(words, 1, words.length - 1));
            } catch (InvocationTargetException failure) {
                if (!(failure.getCause() instanceof Ended)) {
                    failure.getCause().printStackTrace(out);
                    status = status == null ? Integer.valueOf(1) : status;
                }
            }
            hooks.forEach(Runnable::run);
            hooks.clear();
            out.flush();
            answers.println((status == null ? 0 : status) + " " + printed.size());
            printed.writeTo(answers);
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
