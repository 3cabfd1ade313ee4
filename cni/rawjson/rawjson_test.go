package rawjson_test

import (
	"encoding/json"
	"testing"

	"github.com/fairlead/fairlead/cni/rawjson"
)

func TestMembers(t *testing.T) {
	t.Parallel()
	data := []byte(` { "a" : 1, "b\"}": [1, {"x": "]"}] ,"a":"\\" }`)
	members, err := rawjson.Members(data)
	if err != nil {
		t.Fatal(err)
	}
	want := []struct{ key, raw string }{{"a", "1"}, {`b"}`, `[1, {"x": "]"}]`}, {"a", `"\\"`}}
	if len(members) != len(want) {
		t.Fatalf("got %v", members)
	}
	for i, m := range members {
		if m.Key != want[i].key || string(m.Raw) != want[i].raw {
			t.Errorf("member %d: %q = %s", i, m.Key, m.Raw)
		}
		if string(data[m.Start:m.Start+len(m.Raw)]) != want[i].raw || data[m.KeyStart] != '"' {
			t.Errorf("member %d: wrong position %d, %d", i, m.KeyStart, m.Start)
		}
	}
}

func TestBadObjects(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "[]", `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1 "b":2}`, `{a:1}`, `{"a":"x`, `{"a":}`, `{"\x":1}`} {
		if m, err := rawjson.Members([]byte(s)); err == nil {
			t.Errorf("%s: accepted as %v", s, m)
		}
	}
}

// Every object that encoding/json accepts has the same keys here.
func FuzzMembers(f *testing.F) {
	f.Add([]byte(`{"a":{"b":[1,"}"]},"\u00e9":null}`))
	f.Add([]byte(`{"":-1e5,"x":tru`))
	f.Fuzz(func(t *testing.T, data []byte) {
		members, err := rawjson.Members(data)
		elements, listErr := rawjson.Elements(data)
		var object map[string]json.RawMessage
		if json.Unmarshal(data, &object) == nil && object != nil {
			checkMembers(t, object, members, err)
		}
		var list []json.RawMessage
		if json.Unmarshal(data, &list) == nil && list != nil && (listErr != nil || len(list) != len(elements)) {
			t.Fatalf("got %d elements of %d, %v", len(elements), len(list), listErr)
		}
	})
}

func checkMembers(t *testing.T, object map[string]json.RawMessage, members []rawjson.Member, err error) {
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, m := range members {
		seen[m.Key] = string(m.Raw)
	}
	for key, raw := range object {
		if seen[key] != string(raw) {
			t.Errorf("%q: got %s, want %s", key, seen[key], raw)
		}
	}
}
