// Package cni is the Container Network Interface protocol: the result of an
// attachment, errors with the specification's codes, versions, arguments and
// the common part of a configuration. It uses the standard library only, so a
// runtime or a plugin of another kind can use it alone.
//
// Source: the CNI specification, versions 0.1.0 to 1.1.0.
package cni
