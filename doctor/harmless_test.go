package doctor

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/ipam"
	"github.com/fairlead/fairlead/kernel/inspect"
	"github.com/fairlead/fairlead/kernel/nft"
)

// A command for an operator to paste has no name in it that a shell would run.
func TestNamesForAShell(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"';reboot;'", "$(reboot)", "`id`", "a&b", "a|b", "x>y", "*"} {
		mine := ipam.Owner{ContainerID: "c1", IfName: name}
		f := &Facts{Host: &inspect.Survey{}, Ruleset: &nft.Ruleset{}, Attachments: []*Attachment{{
			Network: "n", Container: "c1", IfName: name, State: "ok", Held: []HeldAddr{{File: "/var/lib/cni/networks/n/10.1.0.2", Expected: mine, Free: true}},
		}}}
		all := harmless(f, held(f, f.Attachments[0]))
		if len(all) != 1 || strings.Contains(all[0].Fix, "sh -c") || !strings.Contains(all[0].Fix, "the command is not printed") {
			t.Errorf("%s: %+v", name, all)
		}
	}
	f := &Facts{Attachments: []*Attachment{{IfName: "eth0.5", Netns: "/run/netns/a-b", Held: []HeldAddr{{File: "/x", Expected: ipam.Owner{ContainerID: "c1", IfName: "eth0.5"}, Free: true}}}}}
	if all := harmless(f, held(f, f.Attachments[0])); len(all) != 1 || !strings.HasPrefix(all[0].Fix, "sh -c") {
		t.Errorf("a good name: %+v", all)
	}
}

// Nor does what is printed move a terminal's cursor.
func TestPrintable(t *testing.T) {
	t.Parallel()
	if got := printable("link \x1b[2Jevil\x07 ü\n"); got != "link \uFFFD[2Jevil\uFFFD ü\n" {
		t.Errorf("%q", got)
	}
}
