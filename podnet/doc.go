// Package podnet connects pods to networks. It does what kubelet's network plugin manager and each CRI runtime do
// around libcni. It reads the networks of a configuration directory, and sets up and tears down all networks of a pod.
// A tear-down needs only the pod's ID.
//
// A Manager is safe for concurrent use. Operations on one pod run one after the other, also across processes with the
// same Options.StateDir. Operations on different pods run in parallel.
//
// Plugins run in the Manager's own goroutines, so the process's threads must be in the host's network namespace.
package podnet
