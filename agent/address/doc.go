// Package address is the agent's half of the cluster's addresses: blocks of this
// node, addresses that the cluster gives one by one, and the socket at which
// plugins ask for them. What it decides it writes to the store by compare and swap; no
// agent is special, and none needs another.
package address
