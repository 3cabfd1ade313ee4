// Package libcni is the runtime's side of the protocol: it loads network
// lists, runs their plugins for every operation, and remembers each attachment
// in a cache whose files other runtimes' libraries read and write too.
//
// Source: the CNI specification, section 3; names as in the reference library.
package libcni
