"""One module per command of `rtmp-spark`: `add_arguments(parser)` and `run(args)`, which returns the exit code."""
