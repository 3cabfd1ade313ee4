// Package docker is a network driver and an IPAM driver for Docker: libnetwork's remote protocol, JSON over HTTP on a
// unix socket. An endpoint of Docker becomes an attachment of Fairlead, with the same plugins, records and owner tags.
//
// dockerd creates a container's namespace after it has asked for the container's link, moves that link itself, and
// configures it. So CreateEndpoint runs a staged ADD (plugin.Staged), which creates the host's objects and leaves the
// container's link on the host. Once dockerd has moved the link, the record is completed (attach.Dir.NoteMove).
//
// ADR 23 has the reasons.
package docker
