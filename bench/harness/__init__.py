"""What all benchmarks share: declarations, peers, inputs, rounds, results and the tables of the documents. See `bench/run --help`."""
