package cni_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
)

type testConf struct {
	cni.PluginConf
	MTU    uint16       `json:"mtu"`
	IsGW   bool         `json:"isGateway"`
	Hint   *int         `json:"hint"`
	Prefix netip.Prefix `json:"prefix"`
	GW     netip.Addr   `json:"gw"`
	Ranges [][]struct {
		Subnet netip.Prefix `json:"subnet"`
	} `json:"ranges"`
	Plugins []struct {
		IPAM struct {
			Ranges [][]struct {
				Subnet string `json:"subnet"`
			} `json:"ranges"`
		} `json:"ipam"`
	} `json:"plugins"`
	Options map[string]struct {
		N int8 `json:"n"`
	} `json:"options"`
}

// TestDecodeOuterField checks that a key of an embedded struct does not hide the same key of the outer one.
func TestDecodeOuterField(t *testing.T) {
	t.Parallel()
	type Common struct {
		Any  map[string]any `json:"runtimeConfig"`
		Mode any            `json:"mode"`
	}
	var c struct {
		Common
		RuntimeConfig struct{ Rate uint8 } `json:"runtimeConfig"`
		Kind          string               `json:"MODE"`
	}
	for data, want := range map[string]string{
		`{"runtimeConfig": {"rate": -1}}`: `1:28: runtimeConfig.rate = -1: want a whole number from 0 to 255`,
		`{"MODE": 5}`:                     `1:10: MODE = 5: want a string`,
	} {
		if err := cni.Decode([]byte(data), &c); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestDecodeNamesThePlace(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, data, want string }{
		{"bool", "{\n  \"isGateway\": \"yes\"\n}", `2:16: isGateway = "yes": want a boolean: true or false`},
		{"case", `{"ISGATEWAY": 3}`, `1:15: ISGATEWAY = 3: want a boolean: true or false`},
		{"range", `{"mtu": 70000}`, `1:9: mtu = 70000: want a whole number from 0 to 65535`},
		{"negative", `{"mtu": -1}`, `1:9: mtu = -1: want a whole number from 0 to 65535`},
		{"pointer", `{"hint": {}}`, fmt.Sprintf(`1:10: hint = {}: want a whole number from %d to %d`, math.MinInt, math.MaxInt)},
		{"embedded", `{"capabilities": {"ips": 1}}`, `1:26: capabilities.ips = 1: want a boolean: true or false`},
		{"empty key", `{"capabilities": {"": 1}}`, `1:18: capabilities. = {"":1}: want a boolean: true or false`},
		{"prefix", `{"prefix": "10.1.0.0"}`, `1:12: prefix = "10.1.0.0": want an address with its prefix length, like 10.1.0.0/16 or fd00::/64`},
		{"addr", `{"gw": "ten"}`, `1:8: gw = "ten": want an address, like 10.1.0.1 or fd00::1`},
		{"nested text", `{"ranges": [[{"subnet": "10.1.0.0/16"}, {"subnet": "x"}]]}`, `1:52: ranges[0][1].subnet = "x": want an address with its prefix length, like 10.1.0.0/16 or fd00::/64`},
		{"deep", "{\"plugins\":[\n {\"ipam\":{\"ranges\":[[{\"subnet\":5}]]}}]}", `2:32: plugins[0].ipam.ranges[0][0].subnet = 5: want a string`},
		{"map", `{"options": {"a.b": {"n": 300}}}`, `1:27: options.a.b.n = 300: want a whole number from -128 to 127`},
		{"list", `{"ranges": {}}`, `1:12: ranges = {}: want a list, each element a list, each element an object`},
		{"top", `[1, 2]`, `1:1: want an object`},
		{"syntax", "{\n \"a\": 1,\n}", `3:1: want a key in double quotes, found '}': remove the comma before it`},
		{"cut off", `{"a": `, `1:6: the text ends too early: a closing }, ] or " is missing`},
		{"byte order mark", "\ufeff{\"mtu\": 5}", `1:1: the text begins with a byte order mark: save it as UTF-8 without one`},
		{"empty", "  ", `1:1: empty: want a JSON object`},
		{"no colon", `{"a" 1}`, `1:6: want a colon after the key, found '1'`},
		{"no comma", `{"a": 1 "b": 2}`, `1:9: want a comma or } after the value, found '"'`},
		{"no comma in a list", `{"a": [1 2]}`, `1:10: want a comma or ] after the value, found '2'`},
		{"no value", `{"a": }`, `1:7: want a value, found '}': remove the comma before it, or add the value`},
		{"no quotes", `{"a": b}`, `1:7: want a value, found 'b': text must be in double quotes`},
		{"key without quotes", `{a: 1}`, `1:2: want a key in double quotes, found 'a'`},
		{"control character", "{\"a\": \"x\ty\"}", `1:9: the text in quotes has the control character '\t': write it as an escape sequence, like \n`},
		{"escape", `{"a": "\x"}`, `1:9: the text in quotes has an invalid escape sequence: want \\ for a backslash`},
		{"literal", `{"a": tru}`, `1:10: want true, false, null, a number, or text in double quotes`},
		{"number", `{"a": 1.}`, `1:9: the number is not valid: found '}' in it`},
		{"trailing", `{} x`, `1:4: want nothing after the closing }, found 'x'`},
		{"long value", `{"mtu": "` + strings.Repeat("é", 50) + `"}`, `1:9: mtu = "` + strings.Repeat("é", 29) + `...: want a whole number from 0 to 65535`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := cni.Decode([]byte(tt.data), new(testConf))
			if _, ok := errors.AsType[*cni.ConfigError](err); !ok {
				t.Fatalf("not a *ConfigError: %v", err)
			}
			if err.Error() != tt.want {
				t.Errorf("got\n%s\nwant\n%s", err, tt.want)
			}
		})
	}
}

func TestDecodeGood(t *testing.T) {
	t.Parallel()
	var c testConf
	if err := cni.Decode([]byte(`{"name":"n","mtu":1400,"prefix":"10.1.0.0/16","other":[1]}`), &c); err != nil {
		t.Fatal(err)
	}
	if c.Name != "n" || c.MTU != 1400 || c.Prefix != netip.MustParsePrefix("10.1.0.0/16") {
		t.Errorf("%+v", c)
	}
}

func TestInvalid(t *testing.T) {
	t.Parallel()
	data := []byte("{\"ipam\": {\n  \"ranges\": [[{\"subnet\": \"10.1.0.0/33\"}]]},\n \"cni.dev/x\": [7]}")
	for _, tt := range []struct {
		data      []byte
		key, want string
	}{
		{data, "ipam.ranges[0][0].subnet", `2:26: ipam.ranges[0][0].subnet = "10.1.0.0/33": P`},
		{data, "cni.dev/x[0]", `3:16: cni.dev/x[0] = 7: P`},
		{data, "ipam.type", `1:10: ipam.type: P`},
		{data, "ipam.ranges[0][3].subnet", `2:14: ipam.ranges[0][3].subnet: P`},
		{data, "ipam.ranges[x]", `2:13: ipam.ranges[x]: P`},
		{data, "", `1:1: P`},
		{nil, "ipam.type", `ipam.type: P`},
		{[]byte("not json"), "a.b", `1:1: a.b: P`},
	} {
		if got := cni.Invalid(tt.data, tt.key, "P").Error(); got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.key, got, tt.want)
		}
	}
}

// Decode must accept the same documents as encoding/json, and report every error at a position inside the document.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"mtu":1}`, `{"ranges":[[{"subnet":"x"}]]}`, `{"a":`, `{"options":{"":{"n":"\u00`, "[\n]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := cni.Decode(data, new(testConf))
		if want := json.Unmarshal(data, new(testConf)); (err == nil) != (want == nil) {
			t.Fatalf("got %v, encoding/json says %v", err, want)
		}
		if err == nil {
			return
		}
		e, ok := errors.AsType[*cni.ConfigError](err)
		if !ok || e.Problem == "" {
			t.Fatalf("no words in %#v", err)
		}
		if e.Line > 1+strings.Count(string(data), "\n") || e.Column > len(data)+1 {
			t.Fatalf("%d:%d lies outside %q", e.Line, e.Column, data)
		}
	})
}
