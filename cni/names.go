package cni

import "strings"

// ValidateContainerID checks a container ID against the specification's ^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$.
func ValidateContainerID(id string) error {
	if id == "" {
		return Errorf(CodeUnknownContainer, "missing containerID")
	}
	if !isName(id) {
		return Errorf(CodeInvalidEnvironment, "invalid characters in containerID: %q: %s", id, nameRule)
	}
	return nil
}

// ValidateNetworkName checks a network's name by the same rule.
func ValidateNetworkName(name string) error {
	if name == "" {
		return Errorf(CodeInvalidNetworkConfig, "missing network name: the configuration needs the key name")
	}
	if !isName(name) {
		return Errorf(CodeInvalidNetworkConfig, "invalid characters found in network name: %q: %s", name, nameRule)
	}
	return nil
}

// maxInterfaceName is the kernel's IFNAMSIZ without the terminating NUL.
const maxInterfaceName = 15

// ValidateInterfaceName rejects names that the kernel rejects: more than 15 bytes, ".", "..", and names with "/", ":"
// or white space. It also rejects "%", which the kernel replaces with a number, so the link would have another name.
func ValidateInterfaceName(name string) error {
	problem := ""
	switch {
	case name == "":
		problem = "interface name is empty"
	case len(name) > maxInterfaceName:
		problem = "interface name is too long: at most 15 bytes"
	case name == "." || name == "..":
		problem = "interface name is . or .."
	case strings.ContainsFunc(name, isBadInInterface):
		problem = "interface name contains / or : or whitespace characters"
	case strings.Contains(name, "%"):
		problem = "interface name contains %, which the kernel replaces with a number"
	default:
		return nil
	}
	return Errorf(CodeInvalidEnvironment, "%s: %q", problem, name)
}

// ValidatePluginType rejects a type that would lead out of the plugin directories.
func ValidatePluginType(typ string) error {
	switch {
	case typ == "":
		return Errorf(CodeInvalidNetworkConfig, "missing plugin type: the configuration needs the key type")
	case strings.ContainsAny(typ, "/\\\x00") || typ == "." || typ == "..":
		return Errorf(CodeInvalidNetworkConfig, "invalid plugin type %q: want the name of a program, without a path", typ)
	}
	return nil
}

const nameRule = "want letters, digits, '_', '.' and '-', the first a letter or digit"

func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		if !isAlnum(c) && (i == 0 || c != '_' && c != '.' && c != '-') {
			return false
		}
	}
	return s != ""
}

func isAlnum(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func isBadInInterface(r rune) bool {
	switch r {
	case '/', ':', ' ', '\t', '\n', '\v', '\f', '\r', 0, 0x85, 0xA0:
		return true
	}
	return false
}
