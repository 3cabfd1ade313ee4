package skel

import (
	"fmt"
	"io"
	"strings"

	"github.com/fairlead/fairlead/cni"
)

// about describes the plugin to a person who started it manually. Clients read the first line, whose last word is a
// semantic version.
func about(w io.Writer, p Plugin) {
	fmt.Fprintf(w, "CNI %s plugin v%s\n", p.Name, cni.Release())
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
