package kernel_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/kernel"
)

// TestNamesStay checks names that earlier versions gave to links and rules. An upgrade finds its objects by them.
func TestNamesStay(t *testing.T) {
	t.Parallel()
	o := kernel.Owner{Network: "pods", ContainerID: "0f0e0d", IfName: "eth0"}
	long := kernel.Owner{Network: strings.Repeat("n", 65), ContainerID: strings.Repeat("c", 64), IfName: "eth0"}
	for got, want := range map[string]string{
		o.LinkName("veth"):  "vetha76feb0c291",
		o.Hash():            "a76feb0c2917d06c09b0b7024ff4920e642c6178d782e55b522dc392cde63713",
		o.Tag():             "fairlead pods 0f0e0d eth0",
		long.Tag():          "fairlead #8906a9908d0fd9273fe16665 #95b952578e50f3f5a88152c3",
		kernel.Hash("", ""): "ae504fd409960be2850d660c1b4510fa4cac66edf222434994d72c4851b5d1bb",
	} {
		if got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
