// Package libcni is the runtime's side of the CNI protocol. It loads network lists, runs their plugins for every
// operation, and caches each attachment in files that other runtimes' libraries also read and write.
//
// Source: the CNI specification, section 3; names as in the reference library.
package libcni
