package doctor

// lease reports addresses from DHCP that the container must not use, or that nobody renews.
func lease(_ *Facts, a *Attachment) []Finding {
	f := Finding{Name: "lease-lost", Problem: a.Lease.Problem, Effect: "the container does not have what it lost until the server assigns it again",
		Fix: "start the DHCP server, or restore the network to it: the daemon keeps asking (fairlead dhcp-daemon status)"}
	switch {
	case a.Lease.Problem == "":
		return nil
	case a.Lease.Away:
		f.Name, f.Effect = "dhcp-daemon-away", "nobody renews the lease: another machine may get the container's address when it expires"
		f.Fix = "systemctl start fairlead-dhcp.socket, or without systemd: fairlead dhcp-daemon"
	case a.Lease.Unknown:
		f.Name, f.Effect = "lease-unknown", "nobody renews the lease: another machine may get the container's address when it expires"
		f.Fix = a.attachAgain()
	}
	return []Finding{f}
}
