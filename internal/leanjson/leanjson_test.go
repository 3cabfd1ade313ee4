package leanjson_test

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/fairlead/fairlead/internal/leanjson"
)

type inner struct {
	N     int          `json:"n,omitempty"`
	Addr  netip.Addr   `json:",omitzero"`
	Net   netip.Prefix `json:"net"`
	Table *int         `json:"table,omitempty"`
	skip  int
}

type outer struct {
	Text  string `json:"text"`
	When  time.Time
	List  []inner `json:"list"`
	None  []string
	Bytes uint8 `json:"bytes"`
	On    bool  `json:"on,omitempty"`
	Not   int   `json:"-"`
}

func sample(text string) outer {
	table := 5
	return outer{
		Text: text, When: time.Unix(1700000000, 5).UTC(), Bytes: 7, On: true,
		List: []inner{{N: -3, Addr: netip.MustParseAddr("fd00::1"), Net: netip.MustParsePrefix("10.0.0.1/8"), Table: &table}, {skip: 1}},
	}
}

// TestSameAsEncodingJSON checks that the output decodes to the same as encoding/json's.
func TestSameAsEncodingJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "plain", "quo\"te \\ \n\x01", "ünïcode   \xff"} {
		v := sample(text)
		lean, err := leanjson.Append(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		std, _ := json.Marshal(v)
		var a, b outer
		if err := json.Unmarshal(lean, &a); err != nil {
			t.Fatalf("%v in %s", err, lean)
		}
		if err := json.Unmarshal(std, &b); err != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("lean %s\n std %s", lean, std)
		}
	}
	if _, err := leanjson.Append(nil, func() {}); err == nil {
		t.Error("a function was written")
	}
	if s, err := leanjson.Append(nil, nil); err != nil || string(s) != "null" {
		t.Errorf("nil is %s, %v", s, err)
	}
}
