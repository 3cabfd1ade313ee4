package hwaddr_test

import (
	"testing"

	"github.com/fairlead/fairlead/internal/hwaddr"
)

func TestCanonicalMAC(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"02:00:5e:0A:00:ff": "02:00:5e:0a:00:ff",
		"02-00-5E-0a-00-01": "02:00:5e:0a:00:01",
		"0200.5E0a.0001":    "02:00:5e:0a:00:01",
		"0200.5e0a.000g":    "", "0200.5e0a:0001": "",
		"": "", "02:00:5e:0a:00": "", "02:00:5e:0a:00:0g": "", "02:00:5e:0a:00:1 ": "",
		"0200:5e:0a:00:011": "", "02:00:5e:0a:00:01:": "", "02.00.5e.0a.00.01": "",
	} {
		got, err := hwaddr.Canonical(in)
		if err == nil != (want != "") || err == nil && got != want {
			t.Errorf("%q: %q, %v: want %q", in, got, err, want)
		}
	}
}
