package kernel

import "strings"

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

// RecordedText returns a text for an object that FoundByAddress. The record of each attachment with an equal object, or with
// the object's address, contains it. It has no character that JSON escapes.
func RecordedText(o Object) string {
	switch o := o.(type) {
	case *Command:
		return distinctive(strings.Fields(o.String()))
	case *ZoneSource:
		return distinctive([]string{o.Addr})
	case *ReferenceRules:
		return distinctive([]string{o.Addr})
	}
	return ""
}

// distinctive returns the word that the fewest other objects have: the one with the most digits, which is often an address
// or a hash. It skips words with a character that JSON may escape.
func distinctive(words []string) (best string) {
	most := -1
	for _, w := range words {
		digits, plain := 0, true
		for _, c := range w {
			digit := '0' <= c && c <= '9'
			if digit {
				digits++
			}
			plain = plain && (digit || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || strings.ContainsRune("-./:_", c))
		}
		if plain && digits > most {
			best, most = w, digits
		}
	}
	return best
}
