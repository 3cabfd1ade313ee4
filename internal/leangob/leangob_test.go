package leangob

import (
	"bytes"
	"encoding/gob"
	"io"
	"maps"
	"net"
	"reflect"
	"testing"
	"time"
)

type flat struct {
	Name  string
	Data  []byte
	Count int64
	Last  string
}

// TestEncode checks that encoding/gob reads what this package writes.
func TestEncode(t *testing.T) {
	t.Parallel()
	long := string(bytes.Repeat([]byte("x"), 70000))
	for _, want := range []flat{
		{}, {Name: "a"}, {Last: "z"}, {"name", []byte{0, 1}, 127, "last"}, {Count: -1}, {Count: 1 << 62, Name: long}, {Count: -1 << 63, Data: []byte(long)},
	} {
		var b []byte
		for n := range 2 {
			b = AppendStruct(b, 65+n, "flat", []Field{{"Name", want.Name}, {"Data", want.Data}, {"Count", want.Count}, {"Last", want.Last}})
		}
		dec := gob.NewDecoder(bytes.NewReader(b))
		for range 2 {
			var got flat
			if err := dec.Decode(&got); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("%.60v: got %.60v, %v", want, got, err)
			}
		}
	}
}

type deep struct {
	IP     *net.IPNet
	Flat   []flat
	Number *int
	Map    map[string]uint64
	Pair   [2]bool
	Half   float64
	When   time.Time
	Names  []string
}

// TestDecode checks that this package reads what encoding/gob writes.
func TestDecode(t *testing.T) {
	t.Parallel()
	seven := 7
	var b bytes.Buffer
	enc := gob.NewEncoder(&b)
	_, ip, _ := net.ParseCIDR("10.1.0.0/16")
	for _, v := range []any{
		deep{IP: ip, Flat: []flat{{Name: "a", Count: -300}, {}}, Number: &seven, Map: map[string]uint64{"k": 1 << 40}, Pair: [2]bool{true, false},
			Half: 0.5, When: time.Unix(1, 0), Names: []string{"x", ""}},
		"text", -5, []string{"one"}, struct{ A int }{},
	} {
		if err := enc.Encode(v); err != nil {
			t.Fatal(err)
		}
	}
	dec := NewDecoder(&b)
	first, err := dec.Decode()
	if err != nil {
		t.Fatal(err)
	}
	got := first.(map[string]any)
	if when, _ := got["When"].([]byte); len(when) == 0 {
		t.Errorf("When: %v", got["When"])
	}
	delete(got, "When")
	want := map[string]any{
		"IP":   map[string]any{"IP": []byte{10, 1, 0, 0}, "Mask": []byte{255, 255, 0, 0}},
		"Flat": []any{map[string]any{"Name": "a", "Count": int64(-300)}, map[string]any{}}, "Number": int64(7),
		"Map": map[string]any{"k": uint64(1 << 40)}, "Pair": []any{true, false}, "Half": 0.5, "Names": []any{"x", ""},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, want := range []any{"text", int64(-5), []any{"one"}, map[string]any{}} {
		if got, err := dec.Decode(); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("got %v, %v, want %v", got, err, want)
		}
	}
	if _, err := dec.Decode(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

func TestDecodeBad(t *testing.T) {
	t.Parallel()
	for name, b := range map[string]string{
		"short":         "\x05\x0c",
		"huge":          "\xf8\x7f\xff\xff\xff\xff\xff\xff\xff",
		"long number":   "\x80",
		"unknown type":  "\x03\xff\x84\x00",
		"own type":      "\x02\x21\x00",
		"left over":     "\x05\x0c\x00\x01ab",
		"field beyond":  "\x02\x20\x09",
		"list too long": "\x04\x2c\x00\xfe\xff",
	} {
		if v, err := NewDecoder(bytes.NewReader([]byte(b))).Decode(); err == nil {
			t.Errorf("%s: no error, but %v", name, v)
		}
	}
}

// FuzzDecode checks that the decoder only fails with an error, and decodes a flat struct to the same as encoding/gob.
func FuzzDecode(f *testing.F) {
	f.Add(AppendStruct(nil, 65, "flat", []Field{{"Name", "n"}, {"Data", []byte("d")}, {"Count", int64(5)}, {"Last", "l"}}))
	var b bytes.Buffer
	_ = gob.NewEncoder(&b).Encode(deep{Names: []string{"x"}, Map: map[string]uint64{"a": 1}})
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := NewDecoder(bytes.NewReader(data)).Decode()
		var want flat
		if gob.NewDecoder(bytes.NewReader(data)).Decode(&want) != nil || err != nil {
			return
		}
		m, ok := got.(map[string]any)
		if !ok {
			t.Fatalf("gob reads a struct, we read %v", got)
		}
		have := flat{}
		for name := range maps.Keys(m) {
			switch v := m[name].(type) {
			case string:
				if name == "Name" {
					have.Name = v
				}
			case int64:
				if name == "Count" {
					have.Count = v
				}
			}
		}
		if have.Name != want.Name || have.Count != want.Count {
			t.Fatalf("gob reads %v, we read %v", want, m)
		}
	})
}
