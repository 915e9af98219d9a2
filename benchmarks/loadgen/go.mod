module kbroker/benchmarks/loadgen

go 1.21
