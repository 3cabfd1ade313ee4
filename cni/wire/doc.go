// Package wire has the JSON forms of results, and of the answer to VERSION, in each version of the specification.
//
// Encoding drops what an older version does not support:
//
//   - 0.1.0, 0.2.0: one "ip4" and one "ip6", the first address of its family,
//     with its gateway and the routes of its family; a route keeps its
//     destination and gateway. Interfaces are dropped, and routes of a family
//     without an address.
//   - 0.3.0 to 0.4.0: every address has a "version", "4" or "6".
//   - before 1.0.0: mtu, socketPath and pciID of an interface are dropped. The
//     specification has them since 1.1.0; the reference library writes them in
//     1.0.0 too.
//   - mtu, advmss, priority, table and scope of a route are in the specification
//     since 1.1.0, but written from 0.3.0 on, as the reference library does: the
//     delegating plugin gets them only from the IPAM plugin's result, whatever
//     version the configuration has.
//
// Decoding reads the same keys, in upper and lower case, and ignores others.
package wire
