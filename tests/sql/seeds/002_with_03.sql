-- Initial load + CDC:
WITH (
    "initial.load" = "full",
    "cdc" = "true",
    "cdc.start" = "latest"
);
