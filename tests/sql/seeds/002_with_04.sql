WITH ("topic.wait.timeout" = "30s");
