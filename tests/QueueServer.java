import org.elasticmq.rest.sqs.SQSRestServerBuilder;

/** A queue (SQS) for the tests: on a port of loopback, until its input ends. Queues are made by requests. */
public class QueueServer {
  public static void main(String[] arguments) throws Exception {
    var server = SQSRestServerBuilder.withInterface("127.0.0.1").withPort(Integer.parseInt(arguments[0])).start();
    server.waitUntilStarted();
    System.out.println("started");
    while (System.in.read() >= 0) {}
    server.stopAndWait();
    System.exit(0);
  }
}
