package kernel

// FoundByAddress reports whether an object names no owner, and so is found by the container's address only: rules of
// iptables, sources of a firewalld zone, and the reference plugin's rules about an address. If the address has another
// container by now, the object is that container's.
func FoundByAddress(o Object) bool {
	switch o := o.(type) {
	case *Command:
		return !o.IsShared && len(o.Undo) > 0
	case *ZoneSource:
		return true
	case *ReferenceRules:
		return o.Addr != ""
	}
	return false
}
