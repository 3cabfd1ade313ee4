package cni_test

import (
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
)

func TestParseArgs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   string
		want int // pairs; -1: an error
	}{
		{"", 0},
		{"A=1", 1},
		{"IgnoreUnknown=1;K8S_POD_NAME=web-0;MAC=02:00:00:00:00:01", 3},
		{"A=", 1},
		{"A", -1},
		{"=1", -1},
		{"A=1;", -1},
		{"A=1;;B=2", -1},
		{"A=1=2", -1},
		{"A B=1", 1},
		{"a/b=1;é=2", 2},
		{"A\nB=1", -1},
		{"A=1\x00", -1},
	} {
		args, err := cni.ParseArgs(tt.in)
		if (err != nil) != (tt.want < 0) || err == nil && len(args) != tt.want {
			t.Errorf("%q: got %v, %v", tt.in, args, err)
		}
		if err == nil && args.String() != tt.in {
			t.Errorf("%q came back as %q", tt.in, args)
		}
	}
}

func TestArgsGetLast(t *testing.T) {
	t.Parallel()
	args := cni.Args{{Key: "A", Value: "1"}, {Key: "A", Value: "2"}}
	if v, ok := args.Get("A"); !ok || v != "2" {
		t.Errorf("got %q, %v", v, ok)
	}
	if _, ok := args.Get("B"); ok {
		t.Error("B is not there")
	}
}

func TestArgsCheck(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ in, want string }{
		{"IP=10.0.0.1", ""},
		{"IP=10.0.0.1;X=1;IgnoreUnknown=1", ""},
		{"X=1;IgnoreUnknown=TRUE", ""},
		{"X=1;IgnoreUnknown=0", `unknown args ["X=1"]: this plugin accepts IP, MAC`},
		{"X=1;Y=2", `unknown args ["X=1" "Y=2"]`},
		{"X=1;IgnoreUnknown=maybe", "IgnoreUnknown=maybe: want 1"},
	} {
		args, err := cni.ParseArgs(tt.in)
		if err != nil {
			t.Fatal(err)
		}
		err = args.Check("IP", "MAC")
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.in, err, tt.want)
		}
	}
}

func FuzzParseArgs(f *testing.F) {
	f.Add("A=1;B=2")
	f.Add("IgnoreUnknown=1;=")
	f.Fuzz(func(t *testing.T, s string) {
		if args, err := cni.ParseArgs(s); err == nil && args.String() != s {
			t.Errorf("%q came back as %q", s, args)
		}
	})
}
