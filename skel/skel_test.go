package skel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/cni"
	"github.com/fairlead/fairlead/kernel/kerneltest"
	"github.com/fairlead/fairlead/skel"
)

// calls is a plugin that records which of its functions ran.
type calls struct {
	seen []string
	args skel.CmdArgs
	err  error // what every function returns
}

func (c *calls) note(verb string) func(context.Context, *skel.CmdArgs) error {
	return func(_ context.Context, a *skel.CmdArgs) error {
		c.seen, c.args = append(c.seen, verb), *a
		if c.err != nil && c.err.Error() == "panic" {
			panic("on purpose")
		}
		return c.err
	}
}

func (c *calls) plugin() skel.Plugin {
	add := c.note("ADD")
	return skel.Plugin{Name: "noter", About: "Notes calls.", AnyNetns: true, Funcs: skel.CNIFuncs{
		Add: func(ctx context.Context, a *skel.CmdArgs) (*cni.Result, error) {
			return &cni.Result{IPs: []cni.IP{{Address: netip.MustParsePrefix("10.1.0.2/24")}}}, add(ctx, a)
		},
		Check: c.note("CHECK"), Del: c.note("DEL"), GC: c.note("GC"), Status: c.note("STATUS"),
	}}
}

// run calls the plugin with a complete environment, changed by env, each KEY=VALUE.
func run(p skel.Plugin, conf string, env ...string) (code int, stdout, stderr string) {
	vars := map[string]string{"CNI_CONTAINERID": "c1", "CNI_NETNS": "/nowhere", "CNI_IFNAME": "eth0", "CNI_PATH": "/opt/cni/bin", "CNI_ARGS": "A=1"}
	for _, kv := range env {
		k, v, _ := strings.Cut(kv, "=")
		vars[k] = v
	}
	var out, errOut bytes.Buffer
	code = skel.Run(context.Background(), p, func(k string) string { return vars[k] }, strings.NewReader(conf), &out, &errOut)
	return code, out.String(), errOut.String()
}

func decodeError(t *testing.T, stdout string) cni.Error {
	t.Helper()
	var e cni.Error
	if err := json.Unmarshal([]byte(stdout), &e); err != nil {
		t.Fatalf("%q: %v", stdout, err)
	}
	return e
}

const conf11 = `{"cniVersion":"1.1.0","name":"net","type":"noter"}`

func TestEveryVerb(t *testing.T) {
	t.Parallel()
	for verb, want := range map[string]string{
		"ADD": `{"cniVersion":"1.1.0","ips":[{"address":"10.1.0.2/24"}]}` + "\n", "DEL": "", "CHECK": "", "GC": "", "STATUS": "",
	} {
		c := &calls{}
		code, stdout, stderr := run(c.plugin(), conf11, "CNI_COMMAND="+verb)
		if code != 0 || stdout != want || stderr != "" || len(c.seen) != 1 || c.seen[0] != verb {
			t.Errorf("%s: %d %q %q %v", verb, code, stdout, stderr, c.seen)
		}
		got := c.args
		got.StdinData = nil
		wantArgs := skel.CmdArgs{ContainerID: "c1", Netns: "/nowhere", IfName: "eth0", Args: "A=1", Path: "/opt/cni/bin"}
		if string(c.args.StdinData) != conf11 || !sameArgs(got, wantArgs) {
			t.Errorf("%s: args %+v", verb, c.args)
		}
	}
}

func sameArgs(a, b skel.CmdArgs) bool {
	return a.ContainerID == b.ContainerID && a.Netns == b.Netns && a.IfName == b.IfName && a.Args == b.Args && a.Path == b.Path
}

func TestInvalidCallsAreRejected(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, conf, env string
		code            uint
		want            string
	}{
		{"verb", conf11, "CNI_COMMAND=FOO", 4, "unknown CNI_COMMAND: FOO"},
		{"all missing", conf11, "CNI_COMMAND=ADD CNI_CONTAINERID= CNI_NETNS= CNI_IFNAME= CNI_PATH=", 4, "required env variables [CNI_CONTAINERID,CNI_NETNS,CNI_IFNAME,CNI_PATH] missing"},
		{"all wrong", conf11, "CNI_COMMAND=DEL CNI_CONTAINERID=-- CNI_IFNAME=a/b CNI_PATH=", 4, "DEL: required env variables [CNI_PATH] missing; CNI_CONTAINERID: invalid characters in containerID"},
		{"interface", conf11, "CNI_COMMAND=ADD CNI_IFNAME=waytoolonginterface", 4, "interface name is too long"},
		{"GC needs path", conf11, "CNI_COMMAND=GC CNI_PATH=", 4, "[CNI_PATH] missing"},
		{"syntax", `{"name":`, "CNI_COMMAND=ADD", 6, "decode the configuration from stdin: 1:8: the text ends too early: a closing }, ] or \" is missing"},
		{"empty", ``, "CNI_COMMAND=ADD", 6, "empty: want a JSON object"},
		{"list", `[]`, "CNI_COMMAND=ADD", 6, "want an object"},
		{"type", `{"cniVersion":1}`, "CNI_COMMAND=ADD", 6, "cniVersion = 1: want a string"},
		{"no name", `{"cniVersion":"1.1.0"}`, "CNI_COMMAND=STATUS", 7, "missing network name"},
		{"name", `{"cniVersion":"1.1.0","name":"a/b"}`, "CNI_COMMAND=ADD", 7, "invalid characters found in network name"},
		{"version", `{"cniVersion":"9.0","name":"n"}`, "CNI_COMMAND=ADD", 1, `incompatible CNI versions; config is "9.0", plugin supports ["0.1.0"`},
		{"CHECK", `{"cniVersion":"0.3.1","name":"n"}`, "CNI_COMMAND=CHECK", 1, "config version does not allow CHECK"},
		{"GC", `{"cniVersion":"1.0.0","name":"n"}`, "CNI_COMMAND=GC", 1, `config version does not allow GC; config is "1.0.0", GC needs "1.1.0" or newer`},
		{"GC without a list", gcConf(`{"containerID":"c1","ifname":"eth0"}`), "CNI_COMMAND=GC", 7, `cni.dev/valid-attachments = {"containerID":"c1","ifname":"eth0"}: want a list`},
		{"GC with a text", gcConf(`"c1"`), "CNI_COMMAND=GC", 7, "want a list"},
		{"GC with a number", gcConf(`[{"containerID":"c1","ifname":5}]`), "CNI_COMMAND=GC", 7, "want a string"},
		{"GC with null", gcConf(`[null]`), "CNI_COMMAND=GC", 7, "cni.dev/valid-attachments[0] = null: want an object with containerID and ifname"},
		{"GC without an interface", gcConf(`[{"containerID":"c1","ifname":"eth0"},{"containerID":"c2"}]`), "CNI_COMMAND=GC", 7, "valid-attachments[1]"},
		{"STATUS", `{"name":"n"}`, "CNI_COMMAND=STATUS", 1, "config version does not allow STATUS"},
		{"too long", strings.Repeat(" ", 16<<20+1), "CNI_COMMAND=ADD", 6, "longer than 16777216 bytes"},
	} {
		c := &calls{}
		code, stdout, _ := run(c.plugin(), tt.conf, strings.Fields(tt.env)...)
		e := decodeError(t, stdout)
		if code != 1 || e.Code != tt.code || !strings.Contains(e.Error(), tt.want) || c.seen != nil {
			t.Errorf("%s: %d, code %d, %s (%v)", tt.name, code, e.Code, e.Error(), c.seen)
		}
	}
}

// gcConf returns a configuration for GC.
func gcConf(valid string) string {
	return `{"cniVersion":"1.1.0","name":"n","cni.dev/valid-attachments":` + valid + `}`
}

// TestEmptyGC checks the ways to say that no attachment is valid.
func TestEmptyGC(t *testing.T) {
	t.Parallel()
	for _, conf := range []string{conf11, gcConf("null"), gcConf("[]")} {
		c := &calls{}
		if code, stdout, _ := run(c.plugin(), conf, "CNI_COMMAND=GC"); code != 0 || len(c.seen) != 1 {
			t.Errorf("%s: %d %s", conf, code, stdout)
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	data := []byte("{\n \"mtu\": \"x\"}")
	for _, tt := range []struct {
		err          error
		code         uint
		msg, details string
	}{
		{errors.New("link is down"), 100, "link is down", ""},
		{cni.Errorf(11, "busy").WithDetails("later"), 11, "busy", "later"},
		{cni.Invalid(data, "mtu", "want a number"), 7, `mtu = "x": want a number`, "at line 2, column 9 of the configuration that the plugin was given"},
		{errors.New("panic"), 100, "DEL: plugin noter panicked: on purpose", "goroutine"},
	} {
		c := &calls{err: tt.err}
		code, stdout, _ := run(c.plugin(), conf11, "CNI_COMMAND=DEL")
		e := decodeError(t, stdout)
		if code != 1 || e.CNIVersion != "1.1.0" || e.Code != tt.code || e.Msg != tt.msg || !strings.HasPrefix(e.Details, tt.details) {
			t.Errorf("%v: %d %s", tt.err, code, stdout)
		}
	}
}

// TestNilError returns an error variable of the type *cni.Error that was never set, which is no nil error in Go.
func TestNilError(t *testing.T) {
	t.Parallel()
	var unset *cni.Error
	p := skel.Plugin{Name: "p", AnyNetns: true, Funcs: skel.CNIFuncs{Del: func(context.Context, *skel.CmdArgs) error { return unset }}}
	code, stdout, _ := run(p, conf11, "CNI_COMMAND=DEL")
	if e := decodeError(t, stdout); code != 1 || e.Msg != "DEL: plugin p returned an error that is a nil *cni.Error: it has to return nil" {
		t.Errorf("%d %s", code, stdout)
	}
}

func TestNotServed(t *testing.T) {
	t.Parallel()
	p := skel.Plugin{Name: "empty", AnyNetns: true}
	for verb, want := range map[string]int{"ADD": 1, "DEL": 1, "CHECK": 1, "GC": 0, "STATUS": 0} {
		code, stdout, _ := run(p, conf11, "CNI_COMMAND="+verb)
		if code != want || code == 1 && decodeError(t, stdout).Msg != "plugin empty does not serve CNI_COMMAND="+verb {
			t.Errorf("%s: %d %s", verb, code, stdout)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	for _, conf := range []string{"", "no json", `{"cniVersion":"9.9"}`} {
		p := skel.Plugin{Name: "x", Versions: []string{"0.4.0", "1.0.0"}}
		code, stdout, _ := run(p, conf, "CNI_COMMAND=VERSION", "CNI_NETNS=dummy", "CNI_PATH=")
		if code != 0 || stdout != `{"cniVersion":"1.1.0","supportedVersions":["0.4.0","1.0.0"]}`+"\n" {
			t.Errorf("%d %s", code, stdout)
		}
	}
}

// TestVersionFromTerminal checks that VERSION does not wait for the end of the input.
func TestVersionFromTerminal(t *testing.T) {
	t.Parallel()
	in, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	answered := make(chan int)
	go func() {
		answered <- skel.Run(context.Background(), skel.Plugin{Name: "x"}, func(string) string { return "VERSION" }, in, io.Discard, io.Discard)
	}()
	select {
	case code := <-answered:
		if code != 0 {
			t.Errorf("exit code %d", code)
		}
	case <-time.After(kerneltest.Slow(10 * time.Second)):
		t.Error("no answer while the input is open")
	}
}

// TestStartedManually checks what a plugin prints about itself, with and without a version and a description of its own.
func TestStartedManually(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ version, about, want string }{
		{"1.2.3", "Notes calls.", "CNI noter plugin v1.2.3\nNotes calls.\n"},
		{"1.2.3", "", "CNI noter plugin v1.2.3\n"},
		{"", "CNI noter plugin v0.9", "CNI noter plugin v0.9\n"}, // as authors of reference plugins write it
		{"", "", "CNI noter plugin\n"},
	} {
		c := &calls{}
		p := c.plugin()
		p.Version, p.About = x.version, x.about
		code, stdout, stderr := run(p, "")
		rest, ok := strings.CutPrefix(stderr, x.want)
		if code != 0 || stdout != "" || !ok || !strings.HasPrefix(rest, "CNI protocol versions supported: ") {
			t.Errorf("%+v: %d %q %q", x, code, stdout, stderr)
		}
		for _, want := range []string{"1.1.0", "CNI_COMMAND"} {
			if !strings.Contains(rest, want) {
				t.Errorf("%q does not say %s", rest, want)
			}
		}
	}
}

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, errors.New("nobody reads") }

func TestUndeliverable(t *testing.T) {
	t.Parallel()
	for verb, want := range map[string]string{"ADD": "ADD DEL", "DEL": "DEL"} {
		c := &calls{}
		env := map[string]string{"CNI_COMMAND": verb, "CNI_CONTAINERID": "c1", "CNI_NETNS": "/n", "CNI_IFNAME": "eth0", "CNI_PATH": "/"}
		var stderr bytes.Buffer
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		code := skel.Run(ctx, c.plugin(), func(k string) string { return env[k] }, strings.NewReader(conf11), closedPipe{}, &stderr)
		if got := strings.Join(c.seen, " "); code != 1 || got != want || !strings.Contains(stderr.String(), "nobody reads") {
			t.Errorf("%s: %d, ran %s: %s", verb, code, got, stderr.String())
		}
	}
}

// TestGCWithTheEarlyKey passes on the list of a runtime that follows an early text of the specification. Without it, GC
// would delete every attachment.
func TestGCWithTheEarlyKey(t *testing.T) {
	t.Parallel()
	const early = `{"cniVersion":"1.1.0","name":"net","cni.dev/attachments":[{"containerID":"c1","ifname":"eth0"}]`
	for conf, want := range map[string]string{
		early + `}`: "c1",
		early + `,"cni.dev/valid-attachments":[{"containerID":"c2","ifname":"eth0"}]}`: "c2",
		`{"cniVersion":"1.1.0","name":"net","cni.dev/attachments":null}`:               "",
	} {
		c := &calls{}
		if code, stdout, _ := run(c.plugin(), conf, "CNI_COMMAND=GC"); code != 0 {
			t.Errorf("%s: %s", conf, stdout)
			continue
		}
		var got cni.PluginConf
		if err := json.Unmarshal(c.args.StdinData, &got); err != nil {
			t.Fatal(err)
		}
		id := ""
		for _, a := range got.ValidAttachments {
			id += a.ContainerID
		}
		if id != want {
			t.Errorf("%s: valid attachments %v, want %q", conf, got.ValidAttachments, want)
		}
	}
	c := &calls{}
	if code, stdout, _ := run(c.plugin(), `{"cniVersion":"1.1.0","name":"net","cni.dev/attachments":[{"ifname":"eth0"}]}`, "CNI_COMMAND=GC"); code == 0 {
		t.Errorf("an invalid list is accepted: %s", stdout)
	}
}
