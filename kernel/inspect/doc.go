// Package inspect reads the state of a network namespace for diagnosis. It changes nothing.
//
// Only doctor, plan, repair and garbage collection need it; plugins do not link it.
//
//   - survey.go: links, addresses, routes, neighbours and rules at once; the path of a packet
//   - ruleset.go: the nftables ruleset of all software, decoded
//   - tags.go: the owner tags of links that a namespace in use still needs
package inspect
