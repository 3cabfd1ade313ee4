module github.com/fairlead/fairlead/bench/reference

go 1.26.0

require (
	github.com/containernetworking/cni v1.3.0
	github.com/fairlead/fairlead v0.0.0
)

replace github.com/fairlead/fairlead => ../..
