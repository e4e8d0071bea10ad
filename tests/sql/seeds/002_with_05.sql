WITH ("file.wait.timeout" = "30s");
