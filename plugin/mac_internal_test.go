package plugin

import (
	"testing"

	"github.com/fairlead/fairlead/kernel"
)

// Two hosts may attach containers of the same names to one LAN, for example with cnitool, which derives the container ID
// from the namespace's path.
func TestContainerMACOfHosts(t *testing.T) {
	t.Parallel()
	o := kernel.Owner{Network: "net", ContainerID: "c", IfName: "eth0"}
	mac := func(id string) string { return (&Attachment{Owner: o, Facts: onHost{id: id}}).ContainerMAC() }
	if first, again, other := mac("a"), mac("a"), mac("b"); first != again || first == other {
		t.Errorf("host a %s, then %s, host b %s", first, again, other)
	}
}

type onHost struct {
	Facts
	id string
}

func (h onHost) HostID() string { return h.id }

// An empty MAC in CNI_ARGS counts as absent. CNI_ARGS that are not pairs are an error for a plugin that reads MAC.
func TestMACInArgs(t *testing.T) {
	t.Parallel()
	const own = "02:00:00:00:00:01"
	for args, want := range map[string]string{
		"": own, "MAC=": own, "IgnoreUnknown=1;MAC=02:00:00:00:00:02": "02:00:00:00:00:02", "none": "error",
		"MAC=00:00:00:00:00:00": "error", "MAC=01:00:00:00:00:02": "error", "MAC=ff:ff:ff:ff:ff:ff": "error",
	} {
		got, err := (&Conf{}).MAC(&Attachment{Args: args}, own)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("CNI_ARGS %q: %q, want %q", args, got, want)
		}
	}
}
