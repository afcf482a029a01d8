"""One module per subcommand of `rtmp-spark`: `add_arguments(parser)` and `run(args) -> exit code`."""
