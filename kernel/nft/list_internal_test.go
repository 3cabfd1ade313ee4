package nft

import "testing"

// TestRepeats finds elements that a list has twice. An interval may end with the key that the next one begins with.
func TestRepeats(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		set      string
		interval bool
		parts    [][]string
		want     bool
	}{
		{"ipv4_addr", false, [][]string{{"10.0.0.1", "10.0.0.2"}, {"10.0.0.3"}}, false},
		{"ipv4_addr", false, [][]string{{"10.0.0.1", "10.0.0.2"}, {"10.0.0.2"}}, true},
		{"ipv4_addr", true, [][]string{{"10.0.0.0-10.0.0.5", "10.0.0.6-10.0.0.9"}}, false},
		{"ipv4_addr", true, [][]string{{"10.0.0.0-10.0.0.5"}, {"10.0.0.0-10.0.0.5"}}, true},
		{"ipv4_addr . inet_service", true, [][]string{{"10.0.0.1 . 80-81"}, {"10.0.0.1 . 80-90"}}, false},
		{"ipv4_addr . inet_service", true, [][]string{{"10.0.0.1 . 80-81"}, {"10.0.0.1 . 80-81"}}, true},
	} {
		typ, err := ParseSetType(c.set)
		if err != nil {
			t.Fatal(err)
		}
		set := &Elements{Family: "inet", Table: "t", Set: "s", Type: typ, Interval: c.interval}
		listed, got := Repeats{}, false
		for _, part := range c.parts {
			keys := map[string]string{}
			for _, text := range part {
				key, err := set.Key(text)
				if err != nil {
					t.Fatal(err)
				}
				keys[key] = ""
			}
			requests, err := set.Add(keys)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range requests {
				got = listed.Add([][]byte{r.Body}) || got
			}
		}
		if got != c.want {
			t.Errorf("%s, %v: repeats: %v", c.set, c.parts, got)
		}
	}
}
