// Package cluster installs Fairlead as the pod network of a Kubernetes cluster, upgrades it, reports its state, checks
// it from inside every node, and removes it.
//
//   - client.go, objects.go: the connection to the API, and the paths of objects
//   - values.go, ranges.go, others.go: what the cluster has: pod ranges, and other pod networks
//   - apply.go, diff.go, install.go: the objects of the manifest
//   - rollout.go, problems.go, status.go: the agents and their nodes
//   - check.go, workload.go: pods that reach each other. Package probe has what runs in them.
//   - uninstall.go, remove.go: the removal. Package node has what runs on each node.
//
// It uses client-go's REST client without the typed clients, which would double the size of the program.
package cluster
