// Package cni is the Container Network Interface protocol: results, errors with the specification's codes, versions,
// arguments, and the common part of a configuration. It uses only the standard library, so other runtimes and plugins
// can use it alone.
//
// Source: the CNI specification, versions 0.1.0 to 1.1.0.
package cni
