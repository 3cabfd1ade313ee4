package libcni_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/cni/invoke"
	"github.com/fairlead/fairlead/libcni"
)

// answers is an Exec whose plugins answer an ADD with a text, or refuse.
type answers struct {
	invoke.RawExec
	out    string
	refuse func(request []byte) error
}

func (a *answers) ExecList(_ context.Context, members []invoke.Member, _ *invoke.Args) ([]byte, int, error) {
	for i, m := range members {
		request, err := m.Request(nil)
		if err != nil {
			return nil, i, err
		}
		if a.refuse != nil {
			if err := a.refuse(request); err != nil {
				return nil, i, err
			}
		}
	}
	return []byte(a.out), 0, nil
}

// TestUnreadableResult checks that an ADD fails if what the last plugin printed is no result, and that the error does not
// name a place in the configuration.
func TestUnreadableResult(t *testing.T) {
	t.Parallel()
	h := newRuntimeHost(t, "first", "second")
	list := mustList(t, `{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"first"},{"type":"second"}]}`)
	for _, out := range []string{"", "{", "true", "[]", `{"cniVersion":"1.0.0","ips":[{"address":"here"}]}`} {
		lib := libcni.NewCNIConfigWithCacheDir([]string{h.bin}, h.cache, &answers{out: out})
		if r, err := lib.AddNetworkList(t.Context(), list, runtimeConf("c1")); err == nil || !strings.Contains(err.Error(), "second") {
			t.Errorf("%q: %+v, %v", out, r, err)
		} else if _, ofConf := errors.AsType[*cni.ConfigError](err); ofConf || cni.AsError(err).Code != cni.CodeDecodingFailure {
			t.Errorf("%q: %v has code %d, and is about the configuration: %v; want code 6 about the result", out, err, cni.AsError(err).Code, ofConf)
		}
	}
	for _, out := range []string{`{"cniVersion":"1.0.0"}`, `{}`, "null\n"} {
		lib := libcni.NewCNIConfigWithCacheDir([]string{h.bin}, h.cache, &answers{out: out})
		if r, err := lib.AddNetworkList(t.Context(), list, runtimeConf("c1")); err != nil || r.CNIVersion != "1.0.0" {
			t.Errorf("%q: %+v, %v; want an empty result of version 1.0.0", out, r, err)
		}
	}
}

// TestErrorNamesPosition checks that a plugin's error about a value names the line of the person's file.
func TestErrorNamesPosition(t *testing.T) {
	t.Parallel()
	h := newRuntimeHost(t, "first", "second")
	file := filepath.Join(t.TempDir(), "net.conflist")
	const text = "{\n \"cniVersion\": \"1.0.0\", \"name\": \"net\",\n \"plugins\": [\n  {\"type\": \"first\"},\n  {\"type\": \"second\",\n   \"mtu\": 7}\n ]\n}"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := libcni.ConfListFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lib := libcni.NewCNIConfigWithCacheDir([]string{h.bin}, h.cache, &answers{refuse: func(request []byte) error {
		before, _, found := strings.Cut(string(request), "7")
		if !found {
			return nil
		}
		line := strings.Count(before, "\n")
		column := len(before) - strings.LastIndex(before, "\n")
		return &cni.Error{Code: cni.CodeInvalidNetworkConfig, Msg: "the mtu is too small", Details: cni.PositionDetails(line+1, column)}
	}})
	_, err = lib.AddNetworkList(t.Context(), list, runtimeConf("c1"))
	e := cni.AsError(err)
	if want := "at " + file + ":6:11"; e.Code != cni.CodeInvalidNetworkConfig || e.Details != want {
		t.Errorf("%v with details %q, want %q", err, e.Details, want)
	}
}
