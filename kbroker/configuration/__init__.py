"""The broker's configuration: the tables of keys, what was set, and what comes of it."""
