"""What `benchmarks.broker` is made of: brokers under test, requests made beforehand, and the load itself."""
