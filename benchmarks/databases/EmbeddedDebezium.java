import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileInputStream;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;

/** Debezium's embedded engine, as its documentation starts it: counts change events until there are as many as asked for. */
public class EmbeddedDebezium {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.load(new FileInputStream(arguments[0]));
        long wanted = Long.parseLong(arguments[1]);
        AtomicLong seen = new AtomicLong();
        AtomicLong first = new AtomicLong();
        CountDownLatch done = new CountDownLatch(1);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
            .using(properties)
            .using(new DebeziumEngine.ConnectorCallback() {
                @Override
                public void taskStarted() {
                    System.out.println("started");
                    if (wanted == 0) {
                        done.countDown();
                    }
                }
            })
            .notifying((List<ChangeEvent<String, String>> events, DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer) -> {
                first.compareAndSet(0, System.nanoTime());
                for (ChangeEvent<String, String> event : events) {
                    // A deletion is followed by a tombstone, which is no change of its own.
                    if (event.value() != null && seen.incrementAndGet() == wanted) {
                        System.out.println("seconds " + (System.nanoTime() - first.get()) / 1e9);
                        done.countDown();
                    }
                    committer.markProcessed(event);
                }
                committer.markBatchFinished();
            })
            .build();
        var thread = Executors.newSingleThreadExecutor();
        thread.execute(engine);
        done.await();
        if (wanted == 0) {
            // Until it streams, so that the slot exists.
            Thread.sleep(3000);
        }
        engine.close();
        thread.shutdown();
        System.exit(0);
    }
}
