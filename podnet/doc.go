// Package podnet gives pods their networks: what the network plugin manager of
// kubelet and each runtime behind the Container Runtime Interface do around
// libcni, once. It knows the networks of a configuration directory, sets up and
// tears down all networks of a pod, and knows from nothing but a pod's ID what
// there is to tear down.
//
// A Manager is used from any number of goroutines at once. Operations on one pod
// follow one another, also those of other processes with the same Options.StateDir;
// different pods are worked on at the same time.
//
// Plugins run in goroutines of the Manager's own: the process' threads have to be
// in the host's network namespace.
package podnet
