package kernel

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/fairlead/fairlead/kernel/nft"
)

// TestStayingSearch searches lists of several parts for an element that is not leaving. A list that has an element twice
// lacks another one, which may stay.
func TestStayingSearch(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		parts [][]string
		found bool
		err   error
	}{
		{nil, false, nil},
		{[][]string{{"10.0.0.1", "10.0.0.2"}, {"10.0.0.3"}}, false, nil},
		{[][]string{{"10.0.0.1", "10.0.0.2"}, {"10.0.0.1"}}, false, unix.ERESTART},
		{[][]string{{"10.0.0.1", "10.0.0.1"}, {"10.0.0.2"}}, false, unix.ERESTART},
		{[][]string{{"10.0.0.1", "10.0.0.9"}, {"10.0.0.2"}}, true, nil},
		{[][]string{{"10.0.0.1", "10.0.0.2"}, {"10.0.0.1", "10.0.0.9"}}, true, nil},
	} {
		w := stayingSearch{leaving: map[string]bool{"\x0a\x00\x00\x01": true, "\x0a\x00\x00\x02": true, "\x0a\x00\x00\x03": true, "\x0a\x00\x00\x09": false}, listed: nft.Repeats{}}
		for _, keys := range c.parts {
			var msgs [][]byte
			for _, key := range keys {
				r, err := (&nft.Element{Family: "inet", Table: "fairlead", Set: "s", Type: "ipv4_addr", Key: key}).Add()
				if err != nil {
					t.Fatal(err)
				}
				msgs = append(msgs, r.Body)
			}
			if w.part(msgs) {
				break
			}
		}
		if found, err := w.result(); found != c.found || !errors.Is(err, c.err) {
			t.Errorf("%v: %v, %v", c.parts, found, err)
		}
	}
}
