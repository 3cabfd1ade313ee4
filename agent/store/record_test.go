package store

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// FuzzRecord checks that any content is read without a hang or an excessive allocation, and that encoding what was
// decoded gives the same bytes.
func FuzzRecord(f *testing.F) {
	f.Add(record{kind: kindSnapshot, revision: 9, changes: []change{{Entry: Entry{"a/b", []byte("v"), 3}}}}.encode())
	f.Add(record{revision: 1 << 40, changes: []change{{Entry: Entry{Key: "gone"}, deleted: true}, {Entry: Entry{"", nil, 0}}}}.encode())
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := decodeBody(b); err == nil {
			again, n, err := next(r.encode())
			if err != nil || n != len(r.encode()) || !reflect.DeepEqual(r, again) {
				t.Fatalf("%+v became %+v: %v", r, again, err)
			}
		}
		path := filepath.Join(t.TempDir(), "store")
		s := &state{entries: map[string]Entry{}}
		whole := append([]byte(magic), s.snapshot().encode()...)
		if err := os.WriteFile(path, append(whole, b...), 0o600); err != nil {
			t.Fatal(err)
		}
		st, err := File(path)
		if err != nil {
			return
		}
		st.Close()
		if now, err := os.ReadFile(path); err != nil || !bytes.HasPrefix(now, whole) {
			t.Fatalf("the store lost its beginning: %v", err)
		}
	})
}

// TestCutRecord checks that a record that lacks its last bytes is an error, wherever it was cut.
func TestCutRecord(t *testing.T) {
	t.Parallel()
	whole := record{revision: 300, changes: []change{{Entry: Entry{"a/b", []byte("v"), 300}}, {Entry: Entry{Key: "gone"}, deleted: true}}}.encode()[headerSize:]
	if _, err := decodeBody(whole); err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		if r, err := decodeBody(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes: %+v", n, len(whole), r)
		}
	}
}
