package kernel

import (
	"bytes"
	"testing"

	"github.com/fairlead/fairlead/internal/leanjson"
)

// TestRecordedText checks that a record's text of an object contains the text by which the object is searched.
func TestRecordedText(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]Object{
		"10.1.0.9/32": &Command{
			Do:   []string{"iptables", "-w", "-t", "filter", "-A", "CNI-FORWARD", "-d", "10.1.0.9/32", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"},
			Undo: []string{"iptables"},
		},
		"10.1.0.9:80":     &Command{Do: []string{"nft", `add rule inet t c dnat ip to 10.1.0.9:80 comment "fairlead n c1 e<0>"`}, Undo: []string{"nft"}},
		"fd00:1:2::9/128": &ZoneSource{Zone: "trusted", Addr: "fd00:1:2::9/128"},
		"10.1.0.9":        &ReferenceRules{Family: "ip", Table: "filter", Chain: "CNI-FORWARD", Addr: "10.1.0.9"},
		"iptables":        &Command{Do: []string{`"1"`, "iptables"}, Undo: []string{"iptables"}},
		"":                &Command{Do: []string{`"`, "a<1>"}, Undo: []string{"iptables"}},
	} {
		got := RecordedText(o)
		raw, err := leanjson.Append(nil, Objects{o})
		if got != want || err != nil || !FoundByAddress(o) || !bytes.Contains(raw, []byte(got)) {
			t.Errorf("%s: got %q, want %q, recorded as %s, %v", o, got, want, raw, err)
		}
	}
}
