// Package wire holds the JSON form that each version of the specification
// gives to a result, and to the answer to VERSION.
//
// What an older version cannot say is dropped on encoding, by this rule:
//
//   - 0.1.0, 0.2.0: one "ip4" and one "ip6", the first address of its family,
//     with its gateway and the routes of its family; a route keeps its
//     destination and gateway. Interfaces are dropped, and routes of a family
//     that has no address.
//   - 0.3.0 to 0.4.0: every address says its "version", "4" or "6".
//   - before 1.0.0: mtu, socketPath and pciID of an interface are dropped. They
//     are the specification's since 1.1.0; the reference writes them in 1.0.0 too.
//   - mtu, advmss, priority, table and scope of a route are the specification's
//     since 1.1.0, yet written from 0.3.0 on, as the reference does: an IPAM
//     plugin's result is the only way by which they reach the plugin that
//     delegated to it, whichever version their configuration names.
//
// Decoding takes every key it knows from 0.3.0 on and ignores others.
package wire
