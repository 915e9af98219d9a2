"""The subcommands of `kbroker` that are not the broker. Each module has `add_to` and what that installs."""
