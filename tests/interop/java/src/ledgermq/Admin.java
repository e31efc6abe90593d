package ledgermq;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import org.apache.commons.cli.CommandLine;
import org.apache.commons.cli.Option;
import org.apache.commons.cli.Options;
import org.apache.commons.cli.ParseException;
import org.apache.commons.cli.PosixParser;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/**
 * Runs subcommands of mqadmin in one JVM: a line of words parted by tabs on stdin is one of them.
 *
 * <p>Prints its output, each line behind "OUT ", and then "DONE"; "LATE" in place of it for one
 * that did not end within its time, and whose output is not read any further. First of all it
 * prints "COMMANDS" with the names of all subcommands. Ends with stdin, or at the word "on".
 *
 * <p>Usage: Admin NAMESRV SECONDS.
 */
public final class Admin {
    private Admin() { }

    public static void main(String[] args) throws Exception {
        System.setProperty("rocketmq.namesrv.addr", args[0]);
        long withinMs = Long.parseLong(args[1]) * 1_000;
        PrintStream out = System.out;
        MQAdminStartup.initCommand();
        StringBuilder names = new StringBuilder("COMMANDS");
        for (SubCommand command : commands()) {
            names.append(' ').append(command.commandName());
        }
        out.println(names);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = in.readLine()) != null && !line.equals("on")) {
            String[] words = line.split("\t");
            ByteArrayOutputStream captured = new ByteArrayOutputStream();
            PrintStream capture = new PrintStream(captured, true, "UTF-8");
            System.setOut(capture);
            Thread running = new Thread(() -> run(words, capture));
            running.setDaemon(true);
            running.start();
            running.join(withinMs);
            boolean late = running.isAlive();
            for (String printed : captured.toString("UTF-8").split("\r?\n|\r")) {
                out.println("OUT " + printed);
            }
            out.println(late ? "LATE" : "DONE");
            out.flush();
        }
        System.exit(0);
    }

    @SuppressWarnings("unchecked")
    private static List<SubCommand> commands() throws ReflectiveOperationException {
        for (Field field : MQAdminStartup.class.getDeclaredFields()) {
            if (List.class.isAssignableFrom(field.getType())) {
                field.setAccessible(true);
                return (List<SubCommand>) field.get(null);
            }
        }
        throw new NoSuchFieldException("the list of subcommands");
    }

    private static void run(String[] words, PrintStream out) {
        try {
            for (SubCommand known : commands()) {
                if (known.commandName().equals(words[0])) {
                    // Some of them are for one use: they keep a producer that they have shut down.
                    SubCommand command = known.getClass().getDeclaredConstructor().newInstance();
                    Options options = new Options();
                    options.addOption(new Option("h", "help", false, "Print help"));
                    options.addOption(new Option("n", "namesrvAddr", true, "Name server address list"));
                    command.buildCommandlineOptions(options);
                    String[] rest = Arrays.copyOfRange(words, 1, words.length);
                    CommandLine line = new PosixParser().parse(options, rest);
                    command.execute(line, options, null);
                    return;
                }
            }
            out.println("no such command: " + words[0]);
        } catch (ParseException error) {
            out.println("usage: " + error.getMessage());
        } catch (Throwable error) {
            StringBuilder told = new StringBuilder("FAILED");
            for (Throwable cause = error; cause != null; cause = cause.getCause()) {
                told.append(": ").append(cause.getClass().getSimpleName()).append(' ').append(cause.getMessage());
            }
            out.println(told.toString().replace('\n', ' '));
        }
    }
}
