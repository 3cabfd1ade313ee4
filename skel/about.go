package skel

import (
	"fmt"
	"io"
	"strings"
)

// about describes the plugin to a person who started it manually. Clients read the first line, whose last word is a
// semantic version, if the plugin has one. A plugin without Version may have such a line in About, as reference plugins do.
func about(w io.Writer, p Plugin) {
	switch {
	case p.Version != "":
		fmt.Fprintf(w, "CNI %s plugin v%s\n", p.Name, p.Version)
	case p.About == "":
		fmt.Fprintf(w, "CNI %s plugin\n", p.Name)
	}
	if p.About != "" {
		fmt.Fprintf(w, "%s\n", p.About)
	}
	fmt.Fprintf(w, `CNI protocol versions supported: %s

A container runtime starts this program: it sets CNI_COMMAND (ADD, DEL, CHECK,
GC, STATUS or VERSION), CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME and CNI_PATH, and
writes the network's configuration, JSON with "type": %q, to standard input.
To see it answer: CNI_COMMAND=VERSION %s </dev/null
`, strings.Join(p.Versions, ", "), p.Name, p.Name)
}
